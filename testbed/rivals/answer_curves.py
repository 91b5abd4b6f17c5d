"""Quotas for right answers: how likely the whole reference answer is, read from two warm-ups and followed upwards.

S is the mean over a source's calibration records of exp(-tokens * NLL), the probability of the whole reference answer.
Two readings of the warm-ups say what more exposure does to it, and their mean is used:

- the source's mean NLL falls by a power law that ends at 0, and every record's NLL is scaled along it;
- logit S is linear in the logarithm of the quota, each warm-up weighted by its sampling noise.

Priors hold where the measurements say little. S isn't concave in the quota, so the quotas are found by a dynamic
program and not by taking the best next unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from calibudget.allocation.quotas import apportion
from calibudget.errors import AllocationError

Floats = npt.NDArray[np.float64]

#: Units that the dynamic program moves at once; what it leaves over is handed out by gains.
STEP: Final = 10

# The power law of the mean NLL: prior of its exponent, noise of a log NLL, least exponent.
_FALL, _FALL_SD, _FALL_NOISE, _LEAST_FALL = 0.35, 0.25, 0.08, 0.02
# The line of logit S: prior of its slope, least slope, spread of S between two trainings.
_RISE, _RISE_SD, _LEAST_RISE, _RUN_SD = 1.6, 0.6, 0.03, 0.02
# S is held within these before its logit is taken.
_NEAR_0: Final = 1e-4
# No NLL of a record or mean is taken to be smaller.
_LEAST_NLL: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCurve:
    """What more exposure of a source does to its NLL and to its answers.

    Attributes:
        exposure: units at the larger warm-up.
        nll: mean NLL of a token there, nats, along the fitted law.
        fall: exponent of that law, > 0.
        token_nll: of each calibration record there, nats a token, shape (C,).
        tokens: of each record's response, shape (C,).
        offset: logit S at one unit, along the line.
        rise: logit S gained as the logarithm of the quota grows by 1, > 0.
    """

    exposure: int
    nll: float
    fall: float
    token_nll: Floats
    tokens: Floats
    offset: float
    rise: float

    def nats(self, quotas: Floats) -> Floats:
        """Mean NLL of a token after so many units, shape as given, nats, > 0."""
        found: Floats = self.nll * (quotas / self.exposure) ** -self.fall
        return found

    def answers(self, quotas: Floats) -> Floats:
        """Mean probability of the whole reference answer after so many units, shape (Q,), from 0 to 1."""
        scaled = np.multiply.outer((quotas / self.exposure) ** -self.fall, self.tokens * self.token_nll)
        line = self.offset + self.rise * np.log(quotas)
        found: Floats = (np.exp(-scaled).mean(axis=1) + 1 / (1 + np.exp(-line))) / 2
        return found


def answer_probability(token_nll: Sequence[float], tokens: Sequence[int]) -> float:
    """S: the mean over records of exp(-tokens * NLL)."""
    return float(np.exp(-np.array(token_nll) * np.array(tokens)).mean())


def fit_answer_curve(
    exposures: tuple[int, int], token_nll: Sequence[Sequence[float]], tokens: Sequence[int]
) -> AnswerCurve:
    """Fit a source's curves to two warm-ups.

    Args:
        exposures: units of the source in each, ascending, >= 1.
        token_nll: NLL of a token of each calibration record after each, nats, the same records in the same order.
        tokens: of each record's response, end token included.

    Raises:
        AllocationError: exposures that don't ascend, or other lengths.
    """
    low, high = exposures
    if not 1 <= low < high or len(token_nll) != 2 or {len(row) for row in token_nll} != {len(tokens)} or not tokens:
        raise AllocationError(f"an answer curve needs two ascending warm-ups of the same records, not {exposures}")
    doubling = math.log(high / low)
    logs = [math.log(max(_LEAST_NLL, float(np.mean(row)))) for row in token_nll]
    seen = (logs[0] - logs[1]) / doubling
    fall = max(_LEAST_FALL, _weighed(seen, 2 * _FALL_NOISE**2 / doubling**2, _FALL, _FALL_SD**2))
    # the law goes through the middle of both measurements
    nll = math.exp((logs[0] + logs[1]) / 2 - fall * doubling / 2)

    found = [min(1 - _NEAR_0, max(_NEAR_0, answer_probability(row, tokens))) for row in token_nll]
    logits = [math.log(s / (1 - s)) for s in found]
    variances = [(s * (1 - s) / len(tokens) + _RUN_SD**2) / (s * (1 - s)) ** 2 for s in found]
    seen = (logits[1] - logits[0]) / doubling
    rise = max(_LEAST_RISE, _weighed(seen, sum(variances) / doubling**2, _RISE, _RISE_SD**2))
    starts = [logit - rise * math.log(n) for logit, n in zip(logits, exposures, strict=True)]
    offset = math.fsum(start / v for start, v in zip(starts, variances, strict=True))
    return AnswerCurve(
        exposure=high,
        nll=nll,
        fall=fall,
        token_nll=np.array(token_nll[1], dtype=np.float64),
        tokens=np.array(tokens, dtype=np.float64),
        offset=offset / math.fsum(1 / v for v in variances),
        rise=rise,
    )


def answer_quotas(
    curves: Mapping[str, AnswerCurve],
    budget: int,
    *,
    lower: Mapping[str, int],
    upper: Mapping[str, int],
    weight: float = 1.0,
) -> dict[str, int]:
    """The quotas with the largest sum over sources of weight * S - (1 - weight) * NLL, in steps of `STEP`.

    Args:
        curves: by label.
        budget: units to spend.
        lower: least units of each source, >= 1.
        upper: most units of each source.
        weight: of answers against nats, from 0 to 1.

    Raises:
        AllocationError: a budget that the bounds can't hold.
    """
    labels = sorted(curves)
    free = budget - sum(lower[label] for label in labels)
    if free < 0 or budget > sum(upper[label] for label in labels):
        raise AllocationError(f"no quotas between the bounds sum to {budget}")
    steps = free // STEP
    best = np.full(steps + 1, -np.inf)
    best[0] = 0.0
    choices = []
    for label in labels:
        room = min(steps, (upper[label] - lower[label]) // STEP)
        quotas = lower[label] + STEP * np.arange(room + 1, dtype=np.float64)
        gains = weight * curves[label].answers(quotas) - (1 - weight) * curves[label].nats(quotas)
        totals = np.full((room + 1, steps + 1), -np.inf)
        for extra in range(room + 1):
            totals[extra, extra:] = best[: steps + 1 - extra] + gains[extra]
        choices.append(totals.argmax(axis=0))
        best = totals.max(axis=0)
    # pools that aren't whole steps may leave the last steps without a place
    left = int(np.flatnonzero(np.isfinite(best))[-1])
    made = {}
    for label, choice in zip(reversed(labels), reversed(choices), strict=True):
        made[label] = lower[label] + STEP * int(choice[left])
        left -= int(choice[left])
    rest = apportion({label: made[label] - lower[label] + 1 for label in labels}, budget, lower=made, upper=upper)
    return dict(rest.quotas)


def mixed_with_equal(
    quotas: Mapping[str, int], share: float, *, lower: Mapping[str, int], upper: Mapping[str, int]
) -> dict[str, int]:
    """Quotas of which a share is that of equal ones within the same bounds, in whole units."""
    budget = sum(quotas.values())
    equal = apportion(dict.fromkeys(quotas, 1), budget, lower=lower, upper=upper).quotas
    parts = {label: (1 - share) * quotas[label] + share * equal[label] for label in quotas}
    return dict(apportion(parts, budget, lower=lower, upper=upper).quotas)


def _weighed(seen: float, variance: float, prior: float, prior_variance: float) -> float:
    """The mean of a measurement and a prior, each weighted by its precision."""
    return (seen / variance + prior / prior_variance) / (1 / variance + 1 / prior_variance)

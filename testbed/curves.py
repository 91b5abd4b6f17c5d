"""Curves through the held-out losses of finished trainings: what other quotas would have come to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean
from typing import Final

import numpy as np

#: Exponents that a curve may have; 0 is a straight line over the logarithm of the quota.
_EXPONENTS: Final = tuple(number / 32 for number in range(129))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A family's mean NLL after q examples: level + fall * q**-exponent, or level - fall * ln q at the exponent 0.

    Attributes:
        level: nats.
        fall: nats, >= 0; 0 is a flat curve.
        exponent: from 0 to 4.
    """

    level: float
    fall: float
    exponent: float

    def nll(self, quota: float) -> float:
        """The NLL after `quota` examples, at least 1, nats."""
        return self.level - self.fall * (math.log(quota) if not self.exponent else -(quota**-self.exponent))


def fit_curve(quotas: Sequence[int], nlls: Sequence[float]) -> Curve:
    """The curve through the mean NLL at each quota, by least squares; one that rises is flat.

    Args:
        quotas: of the runs, at least two different ones, >= 1.
        nlls: after each, nats. Runs of one quota count as their mean.
    """
    at = sorted(set(quotas))
    means = [fmean(nll for quota, nll in zip(quotas, nlls, strict=True) if quota == one) for one in at]
    fits = []
    for exponent in _EXPONENTS if len(at) > 2 else _EXPONENTS[:1]:
        heights = -np.log(at) if not exponent else np.power(np.array(at, dtype=np.float64), -exponent)
        (level, fall), _, *_ = np.linalg.lstsq(np.stack([np.ones(len(at)), heights], axis=1), means, rcond=None)
        misfit = float(np.square(means - level - fall * heights).sum())
        fits.append((misfit, Curve(level=float(level), fall=float(fall), exponent=exponent)))
    _, best = min(fits, key=lambda fit: fit[0])
    return best if best.fall > 0 else Curve(level=fmean(means), fall=0.0, exponent=0.0)


def predicted(curves: Mapping[str, Curve], quotas: Mapping[str, int]) -> float:
    """The macro NLL of quotas: the mean over the families, nats."""
    return fmean(curve.nll(quotas[label]) for label, curve in curves.items())


def best_quotas(
    curves: Mapping[str, Curve], start: Mapping[str, int], *, lower: Mapping[str, int], upper: Mapping[str, int]
) -> dict[str, int]:
    """The quotas of least predicted NLL with the sum of the start.

    In turn the exchange between two families that gains most is made, at first of many examples, at last of single
    ones; as the curves are convex, what no exchange improves is the minimum.

    Args:
        curves: by label.
        start: quotas within the bounds.
        lower: least of each, >= 1.
        upper: most of each.
    """
    quotas, best = dict(start), predicted(curves, start)
    step = 1 << max(quotas.values()).bit_length()
    while step:
        trials = [
            {**quotas, giver: quotas[giver] - step, taker: quotas[taker] + step}
            for giver, taker in permutations(sorted(quotas), 2)
            if quotas[giver] - step >= lower[giver] and quotas[taker] + step <= upper[taker]
        ]
        trial = min(trials, key=lambda one: predicted(curves, one), default=quotas)
        if predicted(curves, trial) < best:
            best, quotas = predicted(curves, trial), trial
        else:
            step //= 2
    return quotas

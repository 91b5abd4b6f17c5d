"""A law of fine-tuning losses with transfer between sources, fitted to small mixtures.

After Li, Liu and Xing (ICML 2025, "Data mixing optimization for supervised fine-tuning of large language models"):
a source's loss is a power law with a floor in its own units plus those that the rest is worth to it, and the rest is
worth a power of its size. Small runs, each with one source enlarged or reduced, tell the parameters. Theirs fit them
by gradients under a robust loss; here by least squares over a grid that closes in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibudget.allocation.exact.numbers import Real, as_count
from calibudget.allocation.labels import listed, require_same_labels, sorted_labels
from calibudget.allocation.quotas import apportion
from calibudget.allocation.statistics import Floats
from calibudget.errors import AllocationError
from calibudget.messages import counted
from testbed.rivals.searching import search_quotas, weighted_mean

# The first grid: exponents, log10 of what a unit of the rest is worth, and powers of the rest.
_CENTRE: Final = (-0.4, -2.0, 0.6)
_REACH: Final = (0.9, 2.0, 0.4)
_STEPS: Final = 9
_ROUNDS: Final = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureRun:
    """One small training.

    Attributes:
        quotas: units of each source that it was trained on, >= 0.
        nll: mean held-out NLL of each source after it, nats.
    """

    quotas: Mapping[str, int]
    nll: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixingLaw:
    """NLL = floor + scale * (own + transfer * rest**transfer_exponent)**-exponent of one source.

    Attributes:
        floor: nats, >= 0.
        scale: >= 0.
        exponent: > 0.
        transfer: >= 0.
        transfer_exponent: from 0 to 1.
    """

    floor: float
    scale: float
    exponent: float
    transfer: float
    transfer_exponent: float

    def nll(self, own: int, rest: int) -> float:
        """The NLL after `own` units of the source and `rest` of all others together, nats; infinite after none."""
        effective = own + (self.transfer * rest**self.transfer_exponent if rest else 0.0)
        if not self.scale:
            return self.floor
        return self.floor + self.scale * effective**-self.exponent if effective > 0 else math.inf


def fit_mixing_laws(runs: Sequence[MixtureRun]) -> dict[str, MixingLaw]:
    """Fit every source's law to small runs, `perturbed_mixtures` or others.

    Raises:
        InputTypeError, AllocationError: runs of other sources, NLLs that aren't finite, a source whose own exposure
            is always the same.
    """
    if not runs:
        raise AllocationError("there are no runs to fit mixing laws to")
    labels = sorted_labels(runs[0].quotas)
    for number, run in enumerate(runs):
        require_same_labels(labels, run.quotas, f"the quotas of run {number}", "the quotas of run 0")
        require_same_labels(labels, run.nll, f"the NLLs of run {number}", "the quotas of run 0")
    own = np.array([[as_count(run.quotas[label], "the quota", label) for label in labels] for run in runs], dtype=float)
    nll = np.array([[run.nll[label] for label in labels] for run in runs], dtype=np.float64)
    if not np.isfinite(nll).all():
        raise AllocationError("the runs hold an NLL that isn't finite")
    still = [label for k, label in enumerate(labels) if len(set(own[:, k])) < 2]
    if still:
        raise AllocationError(f"every run has the same exposure of {listed(still)}, so that no law shows")
    total = own.sum(axis=1)
    return {label: _fit(own[:, k], total - own[:, k], nll[:, k]) for k, label in enumerate(labels)}


def perturbed_mixtures(exposures: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """The mixtures that show transfer: all sources at their middle exposure, then each alone at its other ones.

    Args:
        exposures: units by source, ascending, as many of each source, two or more; of an even number of them the middle
            one is the lower.

    Returns:
        1 + K (E - 1) mixtures of K sources with E exposures each, labels in code-point order.

    Raises:
        InputTypeError, AllocationError: fewer than two sources or exposures, or exposures that don't ascend from 1 on.
    """
    labels = sorted_labels(exposures)
    if len(labels) < 2:
        raise AllocationError(f"transfer needs two sources or more, but there is {counted(len(labels), 'source')}")
    counts = {label: [as_count(one, "an exposure", label) for one in exposures[label]] for label in labels}
    for label, own in counts.items():
        if len(own) < 2 or own[0] < 1 or own != sorted(set(own)) or len(own) != len(counts[labels[0]]):
            raise AllocationError(
                f"the exposures of {label!r} are {own}, but transfer needs two or more of every source, as many of "
                "each, ascending from 1 on"
            )
    base = {label: own[(len(own) - 1) // 2] for label, own in counts.items()}
    return [base, *({**base, label: one} for label, own in counts.items() for one in own if one != base[label])]


def predict_mixture(
    laws: Mapping[str, MixingLaw], quotas: Mapping[str, int], *, weights: Mapping[str, Real] | None = None
) -> float:
    """The (weighted) macro NLL that the laws predict for quotas, nats.

    Raises:
        InputTypeError, AllocationError: other sources than the laws', or weights that can't be used.
    """
    labels = sorted_labels(laws)
    require_same_labels(labels, quotas, "quotas", "laws")
    total = sum(quotas.values())
    return weighted_mean({label: laws[label].nll(quotas[label], total - quotas[label]) for label in labels}, weights)


def mixing_law_quotas(
    laws: Mapping[str, MixingLaw],
    budget: int,
    *,
    lower: Mapping[str, int] | None = None,
    upper: Mapping[str, int] | None = None,
    weights: Mapping[str, Real] | None = None,
) -> dict[str, int]:
    """The quotas with the least predicted macro NLL that exchanges reach from equal quotas.

    Raises:
        InputTypeError, AllocationError: as `apportion` and `predict_mixture`.
    """
    start = apportion(dict.fromkeys(laws, 1), budget, lower=lower, upper=upper).quotas
    return search_quotas(lambda quotas: predict_mixture(laws, quotas, weights=weights), start, lower=lower, upper=upper)


def _fit(own: Floats, rest: Floats, nll: Floats) -> MixingLaw:
    """Least squares: floor and scale in closed form for every point of a grid that closes in on the best one."""
    centre, reach = np.array(_CENTRE), np.array(_REACH)
    best = (math.inf, MixingLaw(floor=float(nll.mean()), scale=0.0, exponent=1.0, transfer=0.0, transfer_exponent=1.0))
    for _ in range(_ROUNDS):
        for point in _grid(centre, reach):
            exponent, power = 10 ** point[0], min(1.0, max(0.0, point[2]))
            for transfer in (0.0, 10 ** point[1]):
                effective = own + transfer * np.where(rest > 0, rest, 0.0) ** power * (rest > 0)
                if (effective <= 0).any():
                    continue
                floor, scale = _floor_and_scale(effective**-exponent, nll)
                misfit = float(((nll - floor - scale * effective**-exponent) ** 2).sum())
                if misfit < best[0]:
                    law = MixingLaw(
                        floor=floor, scale=scale, exponent=exponent, transfer=transfer, transfer_exponent=power
                    )
                    best, centre = (misfit, law), np.array(point)
        reach = reach * 0.6
    return best[1]


def _grid(centre: Floats, reach: Floats) -> Iterator[tuple[float, float, float]]:
    axes = [np.linspace(c - r, c + r, _STEPS) for c, r in zip(centre, reach, strict=True)]
    for first in axes[0].tolist():
        for second in axes[1].tolist():
            for third in axes[2].tolist():
                yield first, second, third


def _floor_and_scale(heights: Floats, nll: Floats) -> tuple[float, float]:
    """Nonnegative least squares of nll on 1 and the heights."""
    gaps = heights - heights.mean()
    spread = float((gaps * gaps).sum())
    scale = float((gaps * nll).sum()) / spread if spread else 0.0
    if scale <= 0:
        return float(nll.mean()), 0.0
    floor = float(nll.mean()) - scale * float(heights.mean())
    if floor >= 0:
        return floor, scale
    return 0.0, float((heights * nll).sum() / (heights * heights).sum())

"""Integer quotas that minimise the predicted macro NLL, exactly.

Each source's predicted NLL falls ever more slowly with its quota, so the best quotas take the units with the largest
gains, and quotas are the best ones exactly when no unit that is left out comes before one that is taken. A water
level in doubles comes near to them; from there units are exchanged one by one until that holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from calibudget.allocation.exact.doubles import LARGEST_BUDGET
from calibudget.allocation.exact.numbers import Real, as_count, as_double, as_ratio, count_within_doubles
from calibudget.allocation.exact.spread import spread
from calibudget.allocation.labels import require_same_labels, sorted_labels
from calibudget.allocation.quotas import integer_bounds
from calibudget.allocation.statistics import Floats
from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import shown
from testbed.rivals.gains import Slope, Unit, unit
from testbed.rivals.records import Curve
from testbed.rivals.searching import weighted_mean

#: Largest exponent of a power law that is taken.
MOST_EXPONENT: Final = 16.0
# Halvings of the interval in which the level lies; the rest is exchanged exactly.
_HALVINGS: Final = 80


def minimise_nll(
    curves: Mapping[str, Curve],
    budget: int,
    *,
    lower: Mapping[str, Real] | None = None,
    upper: Mapping[str, Real] | None = None,
    weights: Mapping[str, Real] | None = None,
) -> dict[str, int]:
    """The integer quotas with the least sum of weight times predicted NLL.

    Of equal gains the one of the source that comes first in code-point order is taken. Sources with a flat curve, or
    of weight 0, stay at their lower bound unless all others are full; what is then left is spread over them evenly.
    Where a curve has no value at 0, its first unit comes before any other source's second.

    Args:
        curves: one a source.
        budget: units to spend.
        lower: least units a source, default 0.
        upper: most units a source, default no bound.
        weights: what a nat is worth, by source, >= 0; default 1.

    Returns:
        Quotas by label in code-point order that sum to the budget.

    Raises:
        InputTypeError, AllocationError: curves, weights or bounds that can't be used, or that no quotas satisfy.
    """
    labels = sorted_labels(curves)
    budget = as_count(budget, "the budget")
    low, high = integer_bounds(labels, budget, lower, upper, of="curves")
    if budget > LARGEST_BUDGET:
        raise AllocationError(f"the budget {budget:,} is above {LARGEST_BUDGET:,}, where units are too many to weigh")
    sources = _sources(labels, curves, weights, low, [min(most, budget) for most in high])
    quotas = list(low)
    for source in sources:
        quotas[source.place] = source.upper
    rest = budget - sum(quotas)
    if rest >= 0:
        idle = sorted(set(range(len(labels))) - {source.place for source in sources})
        room = [high[k] - low[k] for k in idle]
        even = spread([1] * len(idle), [labels[k] for k in idle], [0] * len(idle), room, rest)
        for k, more in zip(idle, even.quotas, strict=True):
            quotas[k] += more
    else:
        for source, quota in zip(sources, _best(sources, rest + sum(s.upper for s in sources)), strict=True):
            quotas[source.place] = quota
    return dict(zip(labels, quotas, strict=True))


def predict_nll(
    curves: Mapping[str, Curve], quotas: Mapping[str, int], *, weights: Mapping[str, Real] | None = None
) -> float:
    """The predicted macro NLL of quotas: the mean over the sources, or the weighted mean, nats.

    Raises:
        InputTypeError, AllocationError: other sources than the curves', or weights that can't be used.
    """
    labels = sorted_labels(curves)
    require_same_labels(labels, quotas, "quotas", "curves")
    counts = {label: count_within_doubles(quotas[label], "the quota", label) for label in labels}
    return weighted_mean({label: _checked(curves[label], label).nll(counts[label]) for label in labels}, weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A source that gains by more units, and between which quotas it may be."""

    place: int
    slope: Slope
    lower: int
    upper: int


def _sources(
    labels: Sequence[str],
    curves: Mapping[str, Curve],
    weights: Mapping[str, Real] | None,
    low: Sequence[int],
    high: Sequence[int],
) -> list[_Source]:
    """The sources whose gains are above 0, their coefficients scaled so that the largest is 1."""
    checked = {label: _checked(curves[label], label) for label in labels}
    coefficients = [
        weight * Fraction(checked[label].slope) for label, weight in zip(labels, _weights(labels, weights), strict=True)
    ]
    most = max(coefficients, default=Fraction(0))
    made = []
    for place, (label, coefficient) in enumerate(zip(labels, coefficients, strict=True)):
        if coefficient:
            curve = checked[label]
            slope = Slope(coefficient=coefficient / most, exponent=curve.exponent, exposure=curve.exposure)
            made.append(_Source(place=place, slope=slope, lower=low[place], upper=high[place]))
    return made


def _checked(curve: Curve, label: str) -> Curve:
    """The curve with numbers of the declared types.

    Raises:
        InputTypeError, AllocationError: no curve, or a number of it that can't be one.
    """
    if not isinstance(curve, Curve):
        raise InputTypeError(f"the curve of {label!r} must be a Curve, not {shown(curve)}")
    exposure = count_within_doubles(curve.exposure, "the exposure", label)
    exponent = as_double(curve.exponent, "the exponent", label)
    if not (0 <= exponent <= MOST_EXPONENT and exposure):
        raise AllocationError(
            f"the curve of {label!r} has the exponent {exponent} and the exposure {exposure}, but an exponent "
            f"lies between 0 and {MOST_EXPONENT:g} and an exposure is at least 1"
        )
    level = as_double(curve.level, "the level", label)
    slope = as_double(curve.slope, "the slope", label, least=0)
    return Curve(exposure=exposure, level=level, slope=slope, exponent=exponent)


def _weights(labels: Sequence[str], weights: Mapping[str, Real] | None) -> list[Fraction]:
    if weights is None:
        return [Fraction(1)] * len(labels)
    require_same_labels(labels, weights, "weights", "curves")
    exact = [Fraction(*as_ratio(weights[label], "the weight", label)) for label in labels]
    if labels and not any(exact):
        raise AllocationError("all weights are 0, so that nothing is to be minimised")
    return exact


def _best(sources: Sequence[_Source], budget: int) -> list[int]:
    """Quotas that take the units which come first, for sum(lower) <= budget <= sum(upper)."""
    quotas = _near_level(sources, budget)
    total = sum(quotas)
    to_take = [unit(s.slope, k, q) for k, (s, q) in enumerate(zip(sources, quotas, strict=True)) if q < s.upper]
    taken = [
        _Last(unit(s.slope, k, q - 1)) for k, (s, q) in enumerate(zip(sources, quotas, strict=True)) if q > s.lower
    ]
    heapq.heapify(to_take)
    heapq.heapify(taken)

    def change(place: int, quota: int) -> None:
        source, quotas[place] = sources[place], quota
        if quota < source.upper:
            heapq.heappush(to_take, unit(source.slope, place, quota))
        if quota > source.lower:
            heapq.heappush(taken, _Last(unit(source.slope, place, quota - 1)))

    while True:
        # What was pushed before a quota changed again is out of date.
        while to_take and to_take[0].quota != quotas[to_take[0].place]:
            heapq.heappop(to_take)
        while taken and taken[0].unit.quota + 1 != quotas[taken[0].unit.place]:
            heapq.heappop(taken)
        if total < budget or (total == budget and to_take and taken and to_take[0] < taken[0].unit):
            first = heapq.heappop(to_take)
            change(first.place, first.quota + 1)
            total += 1
        elif total > budget:
            last = heapq.heappop(taken).unit
            change(last.place, last.quota)
            total -= 1
        else:
            return quotas


@dataclass(frozen=True, slots=True)
class _Last:
    """A unit in a heap whose first is the one that comes last."""

    unit: Unit

    def __lt__(self, other: _Last) -> bool:
        return other.unit < self.unit


def _near_level(sources: Sequence[_Source], budget: int) -> list[int]:
    """Quotas near the best ones: those whose next unit gains about as much as any other source's, in doubles.

    The gain of the unit after q is about coefficient * exposure**b / (q + 1/2)**(1 + b).
    """
    low = np.array([s.lower for s in sources], dtype=np.float64)
    high = np.array([s.upper for s in sources], dtype=np.float64)
    powers = 1 / (1 + np.array([s.slope.exponent for s in sources]))
    sizes = np.array([max(float(s.slope.coefficient), np.finfo(np.float64).tiny) for s in sources])
    logs = np.log(sizes) + (1 / powers - 1) * np.log([float(s.slope.exposure) for s in sources])

    def at(level: float) -> Floats:
        with np.errstate(over="ignore"):
            near: Floats = np.clip(np.floor(np.exp(powers * (logs - level)) + 0.5), low, high)
        return near

    bottom = float((logs - np.log(high + 1) / powers).min()) - 1
    top = float(logs.max()) + 1
    for _ in range(_HALVINGS):
        middle = (bottom + top) / 2
        bottom, top = (middle, top) if at(middle).sum() >= budget else (bottom, middle)
    return [int(quota) for quota in at(top)]

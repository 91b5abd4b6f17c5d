"""One budget over sources between bounds, by the way that suits its size; the answer is the same by either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calibudget.allocation.exact.doubles import LARGEST_BUDGET, ArraySpread, TieKey, exact_sum, filtered
from calibudget.allocation.exact.integers import Floats, Integers, exact_shares
from calibudget.allocation.exact.numbers import integer_weights

# Below this many sources plain integers are faster than arrays.
_FEW = 192
# Below this many sources the filter's sums of significands are exact.
_MANY = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quotas of shape (K,), and the shares behind them, made when asked for."""

    quotas: list[int]
    shares: Callable[[], list[float]]


def spread(
    utilities: Sequence[object], labels: Sequence[str], lower: Sequence[int], upper: Sequence[int], budget: int
) -> Spread:
    """Shares at the water level and their rounding, for sum(lower) <= budget <= sum(upper); see `exact_shares`.

    Sequences have shape (K,): utilities as given, labels in code-point order, for messages, 0 <= lower <= upper.

    Raises:
        InputTypeError, AllocationError: a utility that isn't a nonnegative finite number.
    """
    if len(utilities) >= _FEW and budget <= LARGEST_BUDGET and {float}.issuperset(map(type, utilities)):
        values = np.array(utilities, dtype=np.float64)
        if values.min() >= 0 and values.max() < np.inf:
            found = spread_arrays(values, np.array(lower, dtype=np.int64), _within(upper, budget), budget)
            if found is not None:
                return Spread(quotas=found.quotas.tolist(), shares=lambda: found.shares().tolist())
    exact = exact_shares(integer_weights(utilities, labels), lower, upper, budget)
    return Spread(quotas=exact.quotas(), shares=exact.nearest)


def _within(bounds: Sequence[int], budget: int) -> Integers:
    """Bounds of any size, none above the budget that an array holds."""
    try:
        integers: Integers = np.minimum(np.array(bounds, dtype=np.int64), budget)
        return integers
    except OverflowError:
        return np.array([min(bound, budget) for bound in bounds], dtype=np.int64)


def spread_arrays(
    utilities: Floats, lower: Integers, upper: Integers, budget: int, tie_key: TieKey | None = None
) -> ArraySpread | None:
    """`spread` on arrays of shape (K,); None where the float filter doesn't apply.

    Utilities are finite and at least 0, 0 <= lower <= upper <= budget. `tie_key` gives from a position what settles
    ties, ascending; without it the position does.
    """
    if not 0 < len(utilities) < _MANY or budget > LARGEST_BUDGET:
        return None
    idle = utilities == 0
    if idle.all():
        utilities = np.ones(len(utilities))
    elif idle.any() and budget - exact_sum(lower[idle]) > exact_sum(upper[~idle]):
        # Sources with utility are full: what is left goes to the others at equal weight.
        lower = np.where(idle, lower, upper)
        utilities = idle.astype(np.float64)
    active = (utilities > 0) & (lower < upper)
    if active.all():
        return _spread_active(utilities, lower, upper, budget, tie_key)
    index = np.flatnonzero(active)
    least = lower[index]
    left = budget - exact_sum(lower) + exact_sum(least)
    inner_key = None if tie_key is None else lambda k: tie_key(int(index[k]))
    found = _spread_active(utilities[index], least, np.minimum(upper[index], left), left, inner_key)
    if found is None:
        return None
    quotas = lower.copy()
    quotas[index] = found.quotas
    return ArraySpread.at(quotas, index, found.shares)


def _spread_active(
    utilities: Floats, lower: Integers, upper: Integers, budget: int, tie_key: TieKey | None
) -> ArraySpread | None:
    """`spread_arrays` over sources that all have utility and room."""
    if exact_sum(lower) == budget:
        return ArraySpread(quotas=lower.copy(), shares=lambda: lower.astype(np.float64))
    if exact_sum(upper) == budget:
        return ArraySpread(quotas=upper.copy(), shares=lambda: upper.astype(np.float64))
    return filtered(utilities, lower, upper, budget, tie_key)

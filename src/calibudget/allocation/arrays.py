"""The primitive on arrays: a million sources that never become a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibudget.allocation.exact.budget_spread import spread_arrays
from calibudget.allocation.exact.doubles import ArraySpread, TieKey, exact_sum, same_label
from calibudget.allocation.exact.integers import Floats, Integers, exact_shares
from calibudget.allocation.exact.numbers import as_count, integer_weights
from calibudget.allocation.source_labels import require_text
from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import shown

# Integers up to this are doubles without loss.
_EXACT_INTEGER = 2**53
# Integers from this on don't fit the arrays of quotas.
_BEYOND_ARRAYS = 2**63


def apportion_arrays(
    utilities: ArrayLike,
    budget: int,
    *,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> ArraySpread:
    """`apportion` on arrays: the same answer, without a dictionary.

    Args:
        utilities: shape (K,), nonnegative and finite: floats up to 64 bits or integers, each meaning exactly what
            it holds; or an object array of any numbers that `apportion` takes, which is slower.
        budget: units to spend, an integer from 0 to 2**63 - 1.
        lower: least units a source, integers, shape (K,), default 0.
        upper: most units a source, integers, shape (K,), default no bound.
        labels: texts that settle ties, in code-point order, shape (K,); without labels the position does. They are
            compared only where equal remainders meet at the last unit, and must differ where they decide.

    Returns:
        Quotas and shares in the order of the arrays.

    Raises:
        InputTypeError: an array or a number of the wrong type.
        AllocationError: as `apportion`; a source is named by its label, or by its position without labels.

    Source: paper 2.3 and its appendix, as `apportion`.
    """
    budget = as_count(budget, "the budget")
    if budget >= _BEYOND_ARRAYS:
        raise AllocationError(f"the budget {budget:,} doesn't fit 64-bit integers: use apportion")
    values = _array(utilities, "utilities")
    if values.ndim != 1:
        raise InputTypeError(f"utilities must have one dimension, not {values.ndim}")
    if labels is not None:
        _require_labels(labels, len(values))
    name = _Names(labels=labels)
    low = np.zeros(len(values), dtype=np.int64) if lower is None else _bounds(lower, "lower", len(values), name)
    high = np.full(len(values), budget) if upper is None else _bounds(upper, "upper", len(values), name)
    _require_feasible(low, high, budget, name, bounded=upper is not None)
    doubles = _doubles(values, name)
    found = None if doubles is None else spread_arrays(doubles, low, np.minimum(high, budget), budget, name.tie_key)
    return _by_integers(values, low, high, budget, name) if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What sources are called in messages and ordered by in ties."""

    labels: Sequence[str] | None

    def __call__(self, position: int) -> str:
        return f"source {position}" if self.labels is None else repr(self.plain(position))

    def plain(self, position: int) -> str:
        """The label itself, or what stands for it."""
        return f"source {position}" if self.labels is None else shown(self.labels[position], str)

    @property
    def tie_key(self) -> TieKey | None:
        """From a position to the text that settles ties there; None without labels."""
        return None if self.labels is None else self.labels.__getitem__

    def order(self, size: int) -> list[int]:
        """Positions in the order that settles ties."""
        order = sorted(range(size), key=self.tie_key)
        for first, second in pairwise(order):
            if self.plain(first) == self.plain(second):
                raise same_label(self.plain(first))
        return order


def _array(values: ArrayLike, kind: str) -> NDArray[Any]:
    """The values as an array of numbers or of whatever; nothing masked, nothing ragged."""
    if np.ma.is_masked(values):
        raise InputTypeError(f"{kind} must not have masked values")
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{kind} must be an array of numbers: {error}") from error


def _require_labels(labels: object, size: int) -> None:
    if isinstance(labels, str | bytes) or not isinstance(labels, Sequence | np.ndarray):
        raise InputTypeError(f"labels must be a sequence of texts, not {shown(labels)} ({type(labels).__name__})")
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise InputTypeError("labels must have one dimension")
    if len(labels) != size:
        raise AllocationError(f"labels must be as many as utilities ({size:,}), not {len(labels):,}")
    if not set(map(type, labels)) <= {str}:
        for position, label in enumerate(labels):
            require_text(label, f"labels[{position}]")


def _bounds(values: ArrayLike, kind: str, size: int, name: _Names) -> Integers:
    array = _array(values, kind)
    if array.shape != (size,):
        raise InputTypeError(f"{kind} must have shape ({size},), not {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputTypeError(f"{kind} must be an array of integers, not of {array.dtype}")
    if size and int(array.min()) < 0:
        position = int(array.argmin())
        raise AllocationError(f"the {kind} bound of {name(position)} must not be negative, but is {array[position]}")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(_BEYOND_ARRAYS - 1))
    integers: Integers = array.astype(np.int64)
    return integers


def _doubles(values: NDArray[Any], name: _Names) -> Floats | None:
    """The utilities as doubles, None if that would round one."""
    if values.dtype.kind == "O":
        return None
    if values.dtype.kind not in "iuf" or values.dtype.itemsize > 8:
        raise InputTypeError(
            f"utilities must be an array of floats up to 64 bits or of integers, not of {values.dtype}"
        )
    for wrong, complaint in ((values < 0, "not be negative"), (~np.isfinite(values), "be finite")):
        if wrong.any():
            position = int(wrong.argmax())
            raise AllocationError(f"the utility of {name(position)} must {complaint}, but is {values[position]}")
    if values.dtype.kind in "iu" and len(values) and int(values.max()) > _EXACT_INTEGER:
        return None
    return values.astype(np.float64, copy=False)


def _require_feasible(low: Integers, high: Integers, budget: int, name: _Names, *, bounded: bool) -> None:
    crossed = low > high
    if bounded and crossed.any():
        k = int(crossed.argmax())
        raise AllocationError(f"the lower bound of {name(k)} is {low[k]:,} and its upper bound only {high[k]:,}")
    if not len(low) and budget:
        raise AllocationError(f"there are no sources to spend a budget of {budget:,} on")
    least = exact_sum(low)
    if least > budget:
        raise AllocationError(f"the lower bounds come to {least:,}, {least - budget:,} above the budget {budget:,}")
    if bounded and exact_sum(high) < budget:
        most = exact_sum(high)
        raise AllocationError(f"the upper bounds come to {most:,}, {budget - most:,} short of the budget {budget:,}")


def _by_integers(values: NDArray[Any], low: Integers, high: Integers, budget: int, name: _Names) -> ArraySpread:
    """The same in plain integers, with the sources in the order that settles ties."""
    order = name.order(len(values))
    weights = integer_weights([values[k] for k in order], [name.plain(k) for k in order])
    exact = exact_shares(weights, low[order].tolist(), high[order].tolist(), budget)
    quotas = np.zeros(len(values), dtype=np.int64)
    quotas[order] = exact.quotas()

    def shares() -> Floats:
        nearest = np.zeros(len(values))
        nearest[order] = exact.nearest()
        return nearest

    return ArraySpread(quotas=quotas, shares=shares)

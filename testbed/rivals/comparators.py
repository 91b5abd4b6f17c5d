"""Rules of others that allocate by equal shares or by learning curves, for comparison at equal cost.

UniMax (Chung and others, ICLR 2023, "UniMax: Fairer and more effective language sampling for large-scale multilingual
pretraining"): equal shares, no source more often than so many epochs. Slice Tuner (Tae and Whang, SIGMOD 2021): a
power law without a floor for each slice, the acquisition that minimises loss and unfairness together, in rounds that
limit how far the balance of the slices moves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibudget.allocation.exact.numbers import as_count
from calibudget.allocation.labels import require_same_labels, sorted_labels
from calibudget.allocation.quotas import apportion, integer_bounds
from calibudget.errors import AllocationError

# Exponents that are tried before the best one is refined.
_EXPONENTS: Final = tuple(number / 16 for number in range(65))
_REFINEMENTS: Final = 60


def unimax_quotas(pool_sizes: Mapping[str, int], budget: int, *, max_epochs: int = 1) -> dict[str, int]:
    """Equal quotas, none above `max_epochs` times its pool; in whole units by the largest remainder.

    Raises:
        InputTypeError, AllocationError: as `apportion`.
    """
    epochs = as_count(max_epochs, "max_epochs")
    labels = sorted_labels(pool_sizes)
    upper = {label: epochs * as_count(pool_sizes[label], "the pool size", label) for label in labels}
    return dict(apportion(dict.fromkeys(labels, 1), budget, upper=upper).quotas)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """NLL(q) = scale * q**-exponent, both at least 0."""

    scale: float
    exponent: float

    def nll(self, quota: float) -> float:
        """The NLL after `quota` units, nats; infinite at 0 unless the curve is flat."""
        if not self.exponent:
            return self.scale
        return self.scale * quota**-self.exponent if quota > 0 else math.inf


def fit_power_law(exposures: Sequence[int], nll: Sequence[float]) -> PowerLaw:
    """The power law through mean NLLs, each squared error weighted by its exposure, as Slice Tuner weighs them.

    Args:
        exposures: units, >= 1, at least two different ones; in any order, and repeated where runs were.
        nll: mean NLL after each, nats, finite, > 0.

    Raises:
        InputTypeError, AllocationError: other lengths or values.
    """
    sizes = [as_count(exposure, "an exposure") for exposure in exposures]
    if len(sizes) != len(nll) or len(set(sizes)) < 2 or min(sizes) < 1:
        raise AllocationError(f"a power law needs NLLs at two or more exposures from 1 on, not {sizes} and {list(nll)}")
    if not all(math.isfinite(value) and value > 0 for value in nll):
        raise AllocationError(f"a power law needs finite NLLs above 0, not {list(nll)}")

    def fitted(exponent: float) -> tuple[float, float]:
        """The scale that fits best, and the weighted squared error that it leaves."""
        heights = [size**-exponent for size in sizes]
        crossed = math.fsum(n * y * h for n, y, h in zip(sizes, nll, heights, strict=True))
        scale = crossed / math.fsum(n * h * h for n, h in zip(sizes, heights, strict=True))
        return scale, math.fsum(n * (y - scale * h) ** 2 for n, y, h in zip(sizes, nll, heights, strict=True))

    best = min(_EXPONENTS, key=lambda exponent: fitted(exponent)[1])
    low, high = max(0.0, best - _EXPONENTS[1]), best + _EXPONENTS[1]
    for _ in range(_REFINEMENTS):
        third = (high - low) / 3
        low, high = (low, high - third) if fitted(low + third)[1] <= fitted(high - third)[1] else (low + third, high)
    return PowerLaw(scale=fitted(low)[0], exponent=low)


def slice_tuner_round(
    laws: Mapping[str, PowerLaw],
    sizes: Mapping[str, int],
    budget: int,
    *,
    upper: Mapping[str, int] | None = None,
    balance: float = 1.0,
    limit: float | None = None,
) -> dict[str, int]:
    """The examples that Slice Tuner acquires next.

    They minimise the sum over the slices of loss + balance * max(0, loss / mean - 1), the mean being that of the
    losses that the curves give for the sizes held. In whole units: its own solver rounds a real-valued solution.

    Args:
        laws: one curve a source, fitted to all that was measured so far.
        sizes: units held of each source, >= 1.
        budget: units left to acquire.
        upper: most units of each source altogether, default no bound.
        balance: weight of unfairness against loss, >= 0.
        limit: by how much the largest size over the smallest may change in this round. The acquisition is cut in
            proportion to keep to it, but to no less than one unit. None acquires the whole budget at once.

    Returns:
        Units to add, by label in code-point order.

    Raises:
        InputTypeError, AllocationError: other sources, sizes of 0, a budget that the bounds can't hold.
    """
    labels = sorted_labels(laws)
    require_same_labels(labels, sizes, "sizes", "laws")
    held = [as_count(sizes[label], "the size", label) for label in labels]
    total = as_count(budget, "the budget") + sum(held)
    _, high = integer_bounds(labels, total, sizes, upper, of="laws")
    if not all(held):
        raise AllocationError(f"Slice Tuner starts from some units of every source, but the sizes are {dict(sizes)}")
    expected = [laws[label].nll(size) for label, size in zip(labels, held, strict=True)]
    mean = math.fsum(expected) / len(expected)

    def loss(k: int, size: int) -> float:
        value = laws[labels[k]].nll(size)
        return value + balance * max(0.0, value / mean - 1) if mean else value

    best = _greedy(loss, held, high, total)
    if limit is not None:
        best = _cut(held, best, limit)
    return {label: after - before for label, before, after in zip(labels, held, best, strict=True)}


def imbalance(sizes: Sequence[int]) -> float:
    """The largest size over the smallest, >= 1."""
    return max(sizes) / min(sizes)


def _greedy(loss: Callable[[int, int], float], sizes: Sequence[int], upper: Sequence[int], total: int) -> list[int]:
    """Sizes of that total which lower a separable convex loss most; of equal gains the first source's goes first."""
    made = list(sizes)
    gains = [(loss(k, size + 1) - loss(k, size), k) for k, size in enumerate(made) if size < upper[k]]
    heapq.heapify(gains)
    for _ in range(total - sum(made)):
        _, k = heapq.heappop(gains)
        made[k] += 1
        if made[k] < upper[k]:
            heapq.heappush(gains, (loss(k, made[k] + 1) - loss(k, made[k]), k))
    return made


def _cut(held: Sequence[int], best: Sequence[int], limit: float) -> list[int]:
    """As large a part of the way from the sizes held to the best ones as leaves the imbalance within the limit."""

    def part(share: float) -> list[int]:
        return [before + math.floor(share * (after - before)) for before, after in zip(held, best, strict=True)]

    start = imbalance(held)
    if abs(imbalance(best) - start) <= limit:
        return list(best)
    low, high = 0.0, 1.0
    for _ in range(_REFINEMENTS):
        middle = (low + high) / 2
        low, high = (middle, high) if abs(imbalance(part(middle)) - start) <= limit else (low, middle)
    made = part(low)
    if made == list(held):
        most = max(range(len(held)), key=lambda k: best[k] - held[k])
        made[most] += 1
    return made

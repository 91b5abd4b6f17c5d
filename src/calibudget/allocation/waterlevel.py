"""The water level in plain integers: exact shares between bounds, and their largest-remainder rounding.

With weights w_k, bounds lower_k <= upper_k and a budget B between the sums of the bounds, the level is the number
that makes the clipped multiples clip(level * w_k, lower_k, upper_k) sum to B; those multiples are the shares.
Several levels may do it, but they all give the same shares, because each clipped multiple only grows with the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibudget.allocation.exact import nearest_double


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactShares:
    """Shares t_k = numerators[k] / denominator, exact; shape (K,)."""

    numerators: list[int]
    denominator: int

    def quotas(self) -> list[int]:
        """Largest-remainder rounding: floor(t_k), then one unit each to the largest fractional parts.

        Sources stand in the order that settles ties. A source at a bound has no fractional part, so no unit can
        carry a quota past its bound: the units left are the sum of the fractional parts, each below 1, and
        therefore fewer than the sources that have one.
        """
        parts = [divmod(numerator, self.denominator) for numerator in self.numerators]
        quotas = [whole for whole, _ in parts]
        left = sum(remainder for _, remainder in parts) // self.denominator
        if left:
            by_remainder = sorted(range(len(parts)), key=lambda k: parts[k][1], reverse=True)
            for k in by_remainder[:left]:
                quotas[k] += 1
        return quotas

    def nearest(self) -> list[float]:
        """The shares as correctly rounded doubles."""
        return [nearest_double(numerator, self.denominator) for numerator in self.numerators]


def exact_shares(weights: Sequence[int], lower: Sequence[int], upper: Sequence[int], budget: int) -> ExactShares:
    """Shares at the water level, for sum(lower) <= budget <= sum(upper), all nonnegative (shape (K,) each).

    Sources of weight 0 stay at their lower bound, unless all others are full: then they share what is left by
    the same rule at equal weight.
    """
    idle = [k for k, weight in enumerate(weights) if not weight]
    if not idle:
        return _level(weights, lower, upper, budget)
    capacity = sum(high for weight, high in zip(weights, upper, strict=True) if weight)
    beyond = budget - sum(lower[k] for k in idle) - capacity
    if beyond > 0:
        full = [high if weight else low for weight, low, high in zip(weights, lower, upper, strict=True)]
        equal = [0 if weight else 1 for weight in weights]
        return _level(equal, full, [f if w else h for f, w, h in zip(full, weights, upper, strict=True)], budget)
    return _level(weights, lower, upper, budget)


def _level(weights: Sequence[int], lower: Sequence[int], upper: Sequence[int], budget: int) -> ExactShares:
    """The level over sources of positive weight; the others stay at their lower bound.

    At a trial level, compare what the upper bounds cut off with what the lower bounds add. If more is cut off
    than added, the true level is no lower than the trial, so whoever is over the upper bound here is over it
    there and can be settled; and the other way round. Each round settles a source or ends.
    """
    settled = [0 if weight else low for weight, low in zip(weights, lower, strict=True)]
    free = [k for k, weight in enumerate(weights) if weight]
    left = budget - sum(settled)
    total = sum(weights)
    while True:
        over = [k for k in free if left * weights[k] > upper[k] * total]
        under = [k for k in free if left * weights[k] < lower[k] * total]
        if not over and not under:
            break
        cut_off = sum(left * weights[k] - upper[k] * total for k in over)
        added = sum(lower[k] * total - left * weights[k] for k in under)
        bounded = {k: upper[k] for k in over} if cut_off >= added else {}
        if added >= cut_off:
            bounded |= {k: lower[k] for k in under}
        for k, bound in bounded.items():
            settled[k] = bound
        free = [k for k in free if k not in bounded]
        left -= sum(bounded.values())
        total -= sum(weights[k] for k in bounded)
    denominator = total or 1
    numerators = [bound * denominator for bound in settled]
    for k in free:
        numerators[k] = left * weights[k]
    return ExactShares(numerators=numerators, denominator=denominator)

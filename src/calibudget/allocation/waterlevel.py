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
        quotas = [numerator // self.denominator for numerator in self.numerators]
        remainders = [numerator % self.denominator for numerator in self.numerators]
        left = sum(remainders) // self.denominator
        if left:
            # Reversed sorting keeps equal remainders in order.
            for k in sorted(range(len(quotas)), key=remainders.__getitem__, reverse=True)[:left]:
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
    if not all(weights):
        idle = [not weight for weight in weights]
        full = sum(low if rests else high for rests, low, high in zip(idle, lower, upper, strict=True))
        if full < budget:
            lower = [low if rests else high for rests, low, high in zip(idle, lower, upper, strict=True)]
            weights = [int(rests) for rests in idle]
    return _level(weights, lower, upper, budget)


def _level(weights: Sequence[int], lower: Sequence[int], upper: Sequence[int], budget: int) -> ExactShares:
    """The level over sources of positive weight; the others stay at their lower bound.

    At a trial level, compare what the upper bounds cut off with what the lower bounds add. If more is cut off
    than added, the true level is no lower than the trial, so whoever is over the upper bound here is over it
    there and can be settled; if not, the level is no higher, and whoever is under the lower bound can. Each round
    settles a source or ends.
    """
    free = [k for k, weight in enumerate(weights) if weight]
    settled = {k: lower[k] for k, weight in enumerate(weights) if not weight}
    left = budget - sum(settled.values())
    total = sum(weights)
    while free:
        over, under = {}, {}
        cut_off = added = 0
        for k in free:
            share = left * weights[k]
            if share > (limit := upper[k] * total):
                over[k] = upper[k]
                cut_off += share - limit
            elif share < (limit := lower[k] * total):
                under[k] = lower[k]
                added += limit - share
        bounded = over if cut_off > added else under
        if not bounded:
            break
        settled |= bounded
        free = [k for k in free if k not in bounded]
        left -= sum(bounded.values())
        total -= sum(weights[k] for k in bounded)
    denominator = total or 1
    numerators = [left * weight for weight in weights]
    for k, bound in settled.items():
        numerators[k] = bound * denominator
    return ExactShares(numerators=numerators, denominator=denominator)

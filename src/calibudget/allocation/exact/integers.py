"""The water level in plain integers: exact shares between bounds, and their largest-remainder rounding.

With weights w_k, bounds lower_k <= upper_k and a budget B between the sums of the bounds, the level is the number
that makes the clipped multiples clip(level * w_k, lower_k, upper_k) sum to B; those multiples are the shares.
Several levels may do it, but they all give the same shares, because each clipped multiple only grows with the level.

Exact integers behind arrays of doubles: their sum, and the signs and order of small differences.

A double is an integer times a power of two. Over a common power, utilities u_k become integers M_k with sum W, and
the share P * u_k / sum(u) of a budget P becomes P * M_k / W. Whether it exceeds an integer q, and how its remainder
compares with another's, is the sign of P * M_k - q * W - offset. These integers have hundreds of bits, but when
doubles already tell that the difference is below 2**62, its value modulo 2**64 is the difference itself, and
wrapping 64-bit arithmetic, which numpy does on whole arrays, gives it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibudget.allocation.exact.numbers import nearest_double


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
    free = [k for k, weight in enumerate(weights) if weight and lower[k] < upper[k]]
    bounds = list(lower)
    left = budget - sum(lower) + sum([lower[k] for k in free])
    total = sum([weights[k] for k in free])
    raised = any(lower)
    shares: list[int] = []
    while free:
        shares = [left * weights[k] for k in free]
        over = [k for k, share in zip(free, shares, strict=True) if share > upper[k] * total]
        under = [k for k, share in zip(free, shares, strict=True) if share < lower[k] * total] if raised else []
        if not over and not under:
            break
        cut_off = sum(left * weights[k] - upper[k] * total for k in over)
        added = sum(lower[k] * total - left * weights[k] for k in under)
        bounded, limits = (over, upper) if cut_off > added else (under, lower)
        for k in bounded:
            bounds[k] = limits[k]
        left -= sum(limits[k] for k in bounded)
        total -= sum(weights[k] for k in bounded)
        settled = set(bounded)
        free = [k for k in free if k not in settled]
    denominator = total or 1
    numerators = [bound * denominator for bound in bounds]
    for k, share in zip(free, shares, strict=False):  # the shares are those of the last round's
        numerators[k] = share
    return ExactShares(numerators=numerators, denominator=denominator)


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_WRAP = 2**64
# IEEE 754 doubles: stored bits of the significand, their mask, and the exponent of the lowest bit of a subnormal.
_STORED = 52
_STORED_MASK = (1 << _STORED) - 1
_LOWEST = -1074
_EXPONENTS = 2047
_ONE = np.float64(1.0).view(np.int64)
# Adding and taking off this rounds significands in [0, 2) to 26 bits; what is left has 26 bits too.
_HALVER = 2.0**27
_BLOCK = 2**13


def blocks(size: int) -> Iterator[slice]:
    """Slices small enough that the temporary arrays of a few operations stay in the cache."""
    for start in range(0, size, _BLOCK):
        yield slice(start, start + _BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubles:
    """Positive finite doubles as integers M_k times 2**base.

    Attributes:
        values: the doubles, shape (K,), 1 <= K < 2**26.
        base: no more than the exponent of the lowest bit of the smallest one.
    """

    values: Floats
    base: int

    @classmethod
    def of(cls, values: Floats) -> Doubles:
        """Find the common power of two."""
        return cls(values=values, base=max(math.frexp(float(values.min()))[1] - _STORED - 1, _LOWEST))

    def only(self, where: slice | Integers) -> Doubles:
        """A part of the doubles, over the same power."""
        return replace(self, values=self.values[where])

    def total(self) -> int:
        """W, the exact sum in units of 2**base.

        Significands are halved and summed by exponent. Sums of fewer than 2**26 halves fit a double's 53 bits, so
        no order of addition rounds them.
        """
        bits = self.values.view(np.int64)
        sums = np.zeros((2, _EXPONENTS))
        for block in blocks(len(bits)):
            exponents = bits[block] >> _STORED
            significands = ((bits[block] & _STORED_MASK) | _ONE).view(np.float64)
            if self.base == _LOWEST:
                subnormal = np.flatnonzero(exponents == 0)
                significands[subnormal] -= 1.0
                exponents[subnormal] = 1
            high = (significands + _HALVER) - _HALVER
            sums[0] += np.bincount(exponents, weights=high, minlength=_EXPONENTS)
            sums[1] += np.bincount(exponents, weights=significands - high, minlength=_EXPONENTS)
        integers = np.ldexp(sums, _STORED)
        shift = _LOWEST - 1 - self.base
        present = np.flatnonzero(sums.any(axis=0)).tolist()
        return sum((int(integers[0, e]) + int(integers[1, e])) << (e + shift) for e in present)

    def integers(self) -> list[int]:
        """The M_k."""
        significands, shifts = self._parts()
        return [m << s for m, s in zip(significands.tolist(), shifts.tolist(), strict=True)]

    def wrapped(self) -> NDArray[np.uint64]:
        """The M_k modulo 2**64."""
        significands, shifts = self._parts()
        # numpy defines a shift by 64 or more, unlike C: nothing is left.
        return significands.view(np.uint64) << shifts.view(np.uint64)

    def _parts(self) -> tuple[Integers, Integers]:
        bits = self.values.view(np.int64)
        exponents = bits >> _STORED
        normal = exponents > 0
        significands = (bits & _STORED_MASK) | (normal.astype(np.int64) << _STORED)
        return significands, np.maximum(exponents, 1) + (_LOWEST - 1 - self.base)


def can_wrap(total: int, width: float) -> bool:
    """Whether differences below `width` times `total` keep their value modulo 2**64."""
    return total.bit_length() + math.frexp(width)[1] < 63


def ordered_differences(
    doubles: Doubles, budget: int, total: int, quotas: Integers, *, width: float, offset: int = 0
) -> Integers:
    """Integers with the signs and the order of budget * M_k - quota_k * total - offset, shape (n,).

    Equal doubles must come with equal quotas; `width` bounds the differences in units of `total`.
    """
    if not can_wrap(total, width):
        return _ranks(doubles, budget, total, quotas, offset)
    p, w, less = (np.uint64(number % _WRAP) for number in (budget, total, offset))
    differences = np.empty(len(quotas), dtype=np.uint64)
    for block in blocks(len(quotas)):
        differences[block] = p * doubles.only(block).wrapped() - w * quotas[block].view(np.uint64) - less
    return differences.view(np.int64)


def _ranks(doubles: Doubles, budget: int, total: int, quotas: Integers, offset: int) -> Integers:
    """Ranks in place of differences, by arbitrary-precision integers over the distinct utilities."""
    _, first, inverse = np.unique(doubles.values, return_index=True, return_inverse=True)
    pairs = zip(doubles.only(first).integers(), quotas[first].tolist(), strict=True)
    exact = [budget * m - q * total - offset for m, q in pairs]
    distinct = sorted({0, *exact})
    rank = {value: k for k, value in enumerate(distinct, start=-distinct.index(0))}
    return np.array([rank[value] for value in exact])[inverse]

"""Exact integers behind arrays of doubles: their sum, and the signs and order of small differences.

A double is an integer times a power of two. Over a common power, utilities u_k become integers M_k with sum W, and
the share P * u_k / sum(u) of a budget P becomes P * M_k / W. Whether it exceeds an integer q, and how its remainder
compares with another's, is the sign of P * M_k - q * W - offset. These integers have hundreds of bits, but when
doubles already tell that the difference is below 2**62, its value modulo 2**64 is the difference itself, and
wrapping 64-bit arithmetic, which numpy does on whole arrays, gives it exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Element = TypeVar("_Element", bound=np.generic)
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


def by_blocks(function: Callable[..., NDArray[_Element]], *arrays: NDArray[Any]) -> NDArray[_Element]:
    """An elementwise function of arrays of equal length >= 1, block by block."""
    return np.concatenate([function(*(array[block] for array in arrays)) for block in blocks(len(arrays[0]))])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDoubles:
    """Positive finite doubles as integers M_k times 2**base.

    Attributes:
        values: the doubles, shape (K,), 1 <= K < 2**26.
        base: the exponent of the lowest bit of the smallest one.
    """

    values: Floats
    base: int

    @classmethod
    def of(cls, values: Floats) -> ExactDoubles:
        """Find the common power of two."""
        return cls(values=values, base=max(math.frexp(float(values.min()))[1] - _STORED - 1, _LOWEST))

    def total(self, values: Floats | None = None) -> int:
        """W, the exact sum of all or of a part of the values, in units of 2**base.

        Significands are halved and summed by exponent. Sums of fewer than 2**26 halves fit a double's 53 bits, so
        no order of addition rounds them.
        """
        bits = (self.values if values is None else values).view(np.int64)
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

    def integers(self, index: Integers) -> list[int]:
        """The M_k of some values."""
        significands, shifts = self._parts(index)
        return [m << s for m, s in zip(significands.tolist(), shifts.tolist(), strict=True)]

    def wrapped(self, index: Integers) -> NDArray[np.uint64]:
        """The M_k of some values modulo 2**64."""
        significands, shifts = self._parts(index)
        shifted = significands.view(np.uint64) << np.minimum(shifts, 63).view(np.uint64)
        return np.where(shifts < 64, shifted, np.uint64(0))

    def _parts(self, index: Integers) -> tuple[Integers, Integers]:
        bits = self.values[index].view(np.int64)
        exponents = bits >> _STORED
        normal = exponents > 0
        significands = (bits & _STORED_MASK) | (normal.astype(np.int64) << _STORED)
        return significands, np.maximum(exponents, 1) + (_LOWEST - 1 - self.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residues:
    """Signs and order of budget * M_k - quota_k * total - offset.

    Attributes:
        doubles: the utilities.
        budget: P.
        total: W.
    """

    doubles: ExactDoubles
    budget: int
    total: int

    def ordered(self, index: Integers, quotas: Integers, width: float, offset: int = 0) -> Integers:
        """Integers with the signs and the order of the differences, shape (n,).

        Args:
            index: which utilities, shape (n,).
            quotas: the integers to compare with, shape (n,); equal utilities must come with equal quotas.
            width: a bound on the differences in units of `total`.
            offset: what to take off all of them.
        """
        if self.total.bit_length() + math.frexp(width)[1] >= 63:
            return self._ranked(index, quotas, offset)
        budget, total, less = (np.uint64(number % _WRAP) for number in (self.budget, self.total, offset))

        def wrapped(index: Integers, quotas: Integers) -> Integers:
            return (budget * self.doubles.wrapped(index) - total * quotas.view(np.uint64) - less).view(np.int64)

        return by_blocks(wrapped, index, quotas)

    def _ranked(self, index: Integers, quotas: Integers, offset: int) -> Integers:
        """Ranks in place of differences, by arbitrary-precision integers over the distinct utilities."""
        _, first, inverse = np.unique(self.doubles.values[index], return_index=True, return_inverse=True)
        integers = self.doubles.integers(index[first])
        exact = [
            self.budget * m - q * self.total - offset for m, q in zip(integers, quotas[first].tolist(), strict=True)
        ]
        distinct = sorted(set(exact))
        zero = bisect_left(distinct, 0)
        above = 0 if 0 in distinct[zero : zero + 1] else 1
        rank = {value: k - zero + (above if k >= zero else 0) for k, value in enumerate(distinct)}
        return np.array([rank[value] for value in exact], dtype=np.int64)[inverse.reshape(-1)]

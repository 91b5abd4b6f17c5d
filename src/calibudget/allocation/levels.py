"""Shares at a level in doubles, with more precision only where doubles can't decide.

A decision within the doubles' error (whether a share is over a bound, where its integer part ends, which remainders are
the largest) is made again in twice the precision, and within the error of that on exact integers.

The first error: a level is the correctly rounded quotient of exact integers, so its relative error is at most 2**-53,
and so is that of its product with a utility. A computed share t is therefore within t * 2**-51 of the true one or,
where the product underflows, within 2**-1021. The second: the rounding errors of level and product are known as
doubles themselves; with them added, what is left is below t * 2**-98.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibudget.allocation.exact import nearest_double
from calibudget.allocation.residues import ExactDoubles, Floats, Integers, Residues, by_blocks

# Errors of a computed share: relative in doubles, relative in twice the precision, absolute; with room to spare.
_SINGLE: Final = 2.0**-50
_TWOFOLD: Final = 2.0**-96
_ABSOLUTE: Final = 2.0**-1000
# Utilities between this and its inverse keep levels and products normal doubles.
_SAFE: Final = 2.0**900
# Computed shares above this are far beyond any bound; cutting them off keeps infinities out.
_BEYOND: Final = 2.0**60
# Splits a double into halves whose products are exact.
_SPLITTER: Final = 2.0**27 + 1

#: Which bound holds a share: 1 the upper, -1 the lower, 0 neither; shape (K,).
Sides = NDArray[np.int8]
#: From a position to the label that settles ties there.
TieKey = Callable[[int], str]
_Number = TypeVar("_Number", float, Floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A trial level at which utilities share a budget.

    Attributes:
        residues: exact comparisons at this level.
        scaled: the utilities times a power of two that keeps products in range, shape (K,).
        factor: what multiplies them, exact.
        shares: the products in doubles, shape (K,).
    """

    residues: Residues
    scaled: Floats
    factor: Fraction
    shares: Floats

    @classmethod
    def at(cls, doubles: ExactDoubles, budget: int, total: int, largest: float) -> Level:
        """The level at which utilities of exact sum `total`, the largest of them `largest`, share a budget."""
        shift = 0 if 1 / _SAFE < largest < _SAFE else -math.frexp(largest)[1]
        power = doubles.base + shift
        factor = Fraction(budget << max(-power, 0), total << max(power, 0))
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.ldexp(doubles.values, shift) if shift else doubles.values
            shares = np.minimum(scaled * float(factor), _BEYOND)
        residues = Residues(doubles=doubles, budget=budget, total=total)
        return cls(residues=residues, scaled=scaled, factor=factor, shares=shares)

    def corrected(self, sides: Sides, lower: Integers, upper: Integers) -> Sides:
        """Sides that agree with the true shares: 1 for a share over its upper bound, -1 for one under its lower.

        A share that equals a bound may be counted as at the bound or between the bounds.
        """

        def corrected(index: Integers, sides: Sides, lower: Integers, upper: Integers) -> Sides:
            over, under = self._signs(index, upper), self._signs(index, lower)
            wrong = np.where(sides > 0, over < 0, np.where(sides < 0, under > 0, (over > 0) | (under < 0)))
            return np.where(wrong, (over > 0).astype(np.int8) - (under < 0), sides)

        return by_blocks(corrected, np.arange(len(sides)), sides, lower, upper)

    def whole_parts(self, index: Integers) -> Integers:
        """Exact integer parts of true shares, shape (n,), n >= 1."""

        def whole_parts(index: Integers) -> Integers:
            shares = self.shares[index]
            nearest = np.rint(shares)
            whole = np.floor(shares).astype(np.int64)
            # No share is 0, so below a half there is nothing to decide.
            near = np.flatnonzero((np.abs(shares - nearest) <= nearest * _SINGLE) & (nearest > 0))
            if near.size:
                integers = nearest[near].astype(np.int64)
                whole[near] = integers - (self._signs_near(index[near], integers) < 0)
            return whole

        return by_blocks(whole_parts, index)

    def largest(self, index: Integers, whole: Integers, count: int, tie_key: TieKey | None) -> Integers:
        """Positions within `index` of the `count` largest true shares less `whole`, 0 < count < n.

        Args:
            index: sources, ascending, shape (n,).
            whole: the integer parts of their shares, shape (n,).
            count: how many to find.
            tie_key: settles ties; without it the position does.
        """
        most = float(whole.max()) + 1
        sure, near, cut = _top(self.shares[index] - whole, count, most * _SINGLE + _ABSOLUTE)
        wanted = count - len(sure)
        utilities = self.residues.doubles.values[index[near]]
        if wanted == len(near) or utilities.min() == utilities.max():
            return np.concatenate([sure, _first(near, index, wanted, tie_key)])
        finer = self._gaps(index[near], whole[near], cut)
        error = most * _TWOFOLD + _ABSOLUTE
        surer, nearer, finer_cut = _top(finer, wanted, error)
        offset = math.floor((Fraction(cut) + Fraction(finer_cut)) * self.residues.total)
        last = near[nearer]
        keys = self.residues.ordered(index[last], whole[last], 8 * error, offset)
        above, tied, _ = _top(keys, wanted - len(surer), 0)
        wanted -= len(surer) + len(above)
        return np.concatenate([sure, near[surer], last[above], _first(last[tied], index, wanted, tie_key)])

    def nearest(self, index: Integers) -> Floats:
        """Correctly rounded shares, shape (n,), n >= 1."""

        def nearest(index: Integers) -> Floats:
            product, missing = self._twofold(index)
            error = product * _TWOFOLD
            nearest = product + (missing - error)
            unsure = np.flatnonzero((nearest != product + (missing + error)) | (product < 1 / _SAFE))
            integers = self.residues.doubles.integers(index[unsure])
            nearest[unsure] = [nearest_double(self.residues.budget * m, self.residues.total) for m in integers]
            return nearest

        return by_blocks(nearest, index)

    def _signs(self, index: Integers, bounds: Integers) -> Sides:
        """Signs of true shares minus integers, shape (n,)."""
        shares = self.shares[index]
        gaps = shares - bounds
        signs = np.sign(gaps).astype(np.int8)
        near = np.flatnonzero(np.abs(gaps) <= shares * _SINGLE + _ABSOLUTE)
        if near.size:
            signs[near] = self._signs_near(index[near], bounds[near])
        return signs

    def _signs_near(self, index: Integers, integers: Integers) -> Integers:
        """Signs of true shares minus integers that are within the doubles' error of them, shape (n,)."""
        gaps = self._gaps(index, integers)
        signs = np.sign(gaps).astype(np.int64)
        errors = integers * _TWOFOLD + _ABSOLUTE
        near = np.flatnonzero(np.abs(gaps) <= errors)
        if near.size:
            width = 4 * float(errors[near].max())
            signs[near] = np.sign(self.residues.ordered(index[near], integers[near], width))
        return signs

    def _gaps(self, index: Integers, integers: Integers, offset: float = 0.0) -> Floats:
        """Small differences of true shares from integers plus an offset, in twice the precision, shape (n,)."""

        def gaps(index: Integers, integers: Integers) -> Floats:
            product, missing = self._twofold(index)
            return ((product - integers) - offset) + missing

        return by_blocks(gaps, index, integers)

    def _twofold(self, index: Integers) -> tuple[Floats, Floats]:
        """Shares as doubles and what is missing from them, shape (n,) each (Dekker's product)."""
        values = self.scaled[index]
        factor = float(self.factor)
        product = values * factor
        high, low = _halves(values)
        factor_high, factor_low = _halves(factor)
        missing = ((high * factor_high - product) + high * factor_low + low * factor_high) + low * factor_low
        return product, missing + values * float(self.factor - Fraction(factor))


def _top(keys: NDArray[np.generic], count: int, error: float) -> tuple[Integers, Integers, float]:
    """Positions surely among the `count` largest, positions too near the cut to tell, and the cut, 0 < count <= n."""
    cut = np.partition(keys, len(keys) - count)[len(keys) - count]
    sure, possible = keys > cut + 2 * error, keys >= cut - 2 * error
    return np.flatnonzero(sure), np.flatnonzero(possible & ~sure), cut.item()


def _first(tied: Integers, index: Integers, count: int, tie_key: TieKey | None) -> Integers:
    """The first `count` of some tied sources: labels are looked at here and nowhere else."""
    if tie_key is None or count == len(tied):
        return tied[:count]
    return np.array(heapq.nsmallest(count, tied.tolist(), key=lambda k: tie_key(int(index[k]))), dtype=np.int64)


def _halves(number: _Number) -> tuple[_Number, _Number]:
    """A double, or an array of them, as a sum of two with half the bits each."""
    spread = number * _SPLITTER
    high = spread - (spread - number)
    return high, number - high

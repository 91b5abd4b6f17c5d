"""Shares at a level in doubles, with more precision only where doubles can't decide.

A decision within the doubles' error (whether a share is over a bound, where its integer part ends, which remainders are
the largest) is made again in twice the precision, and within the error of that on exact integers.

The first error: a level is the correctly rounded quotient of exact integers, so its relative error is at most 2**-53,
and so is that of its product with a utility. A computed share t is therefore within t * 2**-51 of the true one or,
where the product underflows, within 2**-1021. The second: the rounding errors of level and product are known as
doubles themselves; with them added, what is left is below t * 2**-98.

Largest remainders at the water level by doubles and, where those can't decide, exact integers.

The level is first sought in doubles alone. Which bounds bind there is then judged on exact numbers, and corrected if
need be; the answer is that of rational arithmetic (docs/decisions: exactness).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibudget.allocation.exact.integers import Doubles, Floats, Integers, blocks, ordered_differences
from calibudget.allocation.exact.numbers import nearest_double
from calibudget.errors import AllocationError

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
    """A level at which utilities of exact sum `total` share a budget.

    Attributes:
        doubles: the utilities, shape (K,).
        budget: P.
        total: W, in units of the doubles' base.
        shift: the power of two that brings the utilities into a range where no product leaves the doubles'.
        factor: what then multiplies them, exact.
    """

    doubles: Doubles
    budget: int
    total: int
    shift: int
    factor: Fraction

    @classmethod
    def at(cls, doubles: Doubles, budget: int, total: int, largest: float) -> Level:
        """The level at which utilities of exact sum `total`, the largest of them `largest`, share a budget."""
        shift = 0 if 1 / _SAFE < largest < _SAFE else -math.frexp(largest)[1]
        power = doubles.base + shift
        factor = Fraction(budget << max(-power, 0), total << max(power, 0))
        return cls(doubles=doubles, budget=budget, total=total, shift=shift, factor=factor)

    def only(self, where: slice | Integers) -> Level:
        """The same level for a part of the sources."""
        return replace(self, doubles=self.doubles.only(where))

    def shares(self) -> Floats:
        """Shares as products of doubles, none above a limit that is far beyond any bound, shape (K,)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.minimum(self._scaled() * float(self.factor), _BEYOND)

    def _scaled(self) -> Floats:
        return np.ldexp(self.doubles.values, self.shift) if self.shift else self.doubles.values

    def corrected(self, sides: Sides, lower: Integers, upper: Integers) -> Sides:
        """Sides that agree with the true shares: 1 for a share over its upper bound, -1 for one under its lower.

        A share that equals a bound may be counted as at the bound or between the bounds.
        """
        result = np.empty_like(sides)
        for block in blocks(len(sides)):
            part, old = self.only(block), sides[block]
            over, under = part._signs(upper[block]), part._signs(lower[block])
            at_bound = np.where(old > 0, over, under) == 0
            result[block] = np.where(at_bound, old, (over > 0).astype(np.int8) - (under < 0))
        return result

    def parted(self) -> tuple[Integers, Floats]:
        """Exact integer parts of true shares, and what the computed shares are beyond them."""
        size = len(self.doubles.values)
        whole, parts = np.empty(size, dtype=np.int64), np.empty(size)
        for block in blocks(size):
            part = self.only(block)
            shares = part.shares()
            nearest = np.rint(shares)
            floors = np.floor(shares)
            # No share is 0, so below a half there is nothing to decide.
            near = np.flatnonzero((np.abs(shares - nearest) <= nearest * _SINGLE) & (nearest > 0))
            if near.size:
                integers = nearest[near].astype(np.int64)
                floors[near] = integers - (part.only(near)._signs_near(integers) < 0)
            whole[block], parts[block] = floors, shares - floors
        return whole, parts

    def largest(self, whole: Integers, parts: Floats, count: int, tie_key: TieKey | None) -> Integers:
        """Positions of the `count` largest true shares less `whole`, 0 < count < K; `tie_key` as of `spread_arrays`.

        `whole` are the integer parts of the shares, `parts` what the computed shares are beyond them, shape (K,).
        """
        most = float(whole.max()) + 1
        single, twofold = most * _SINGLE + _ABSOLUTE, most * _TWOFOLD + _ABSOLUTE
        sure, near, cut = _top(parts, count, single)
        level, quotas, wanted = self.only(near), whole[near], count - len(sure)
        values = level.doubles.values
        if wanted == len(near) or values.min() == values.max():
            return np.concatenate([sure, _first(near, wanted, tie_key)])
        surer, nearer, finer_cut = _top(level._gaps(quotas, cut), wanted, twofold)
        sure, near, wanted = np.concatenate([sure, near[surer]]), near[nearer], wanted - len(surer)
        offset = math.floor((Fraction(cut) + Fraction(finer_cut)) * self.total)
        keys = level.only(nearer)._ordered(quotas[nearer], 8 * twofold, offset)
        above, tied, _ = _top(keys, wanted, 0)
        return np.concatenate([sure, near[above], _first(near[tied], wanted - len(above), tie_key)])

    def nearest(self) -> Floats:
        """Correctly rounded shares."""
        result = np.empty(len(self.doubles.values))
        for block in blocks(len(result)):
            part = self.only(block)
            product, missing = part._twofold()
            error = product * _TWOFOLD
            nearest = product + (missing - error)
            unsure = np.flatnonzero((nearest != product + (missing + error)) | (product < 1 / _SAFE))
            integers = part.doubles.only(unsure).integers()
            nearest[unsure] = [nearest_double(self.budget * m, self.total) for m in integers]
            result[block] = nearest
        return result

    def _signs(self, bounds: Integers) -> Floats:
        """Signs of true shares minus integers."""
        if not bounds.any():
            return np.ones(len(bounds))
        shares = self.shares()
        gaps = shares - bounds
        signs = np.sign(gaps)
        near = np.flatnonzero(np.abs(gaps) <= shares * _SINGLE + _ABSOLUTE)
        if near.size:
            signs[near] = self.only(near)._signs_near(bounds[near])
        return signs

    def _signs_near(self, integers: Integers) -> Floats:
        """Signs of true shares minus integers that are within the doubles' error of them."""
        gaps = self._gaps(integers, 0.0)
        signs = np.sign(gaps)
        errors = integers * _TWOFOLD + _ABSOLUTE
        near = np.flatnonzero(np.abs(gaps) <= errors)
        if near.size:
            signs[near] = np.sign(self.only(near)._ordered(integers[near], 4 * float(errors[near].max()), 0))
        return signs

    def _ordered(self, quotas: Integers, width: float, offset: int) -> Integers:
        return ordered_differences(self.doubles, self.budget, self.total, quotas, width=width, offset=offset)

    def _gaps(self, integers: Integers, offset: float) -> Floats:
        """Small differences of true shares from integers plus an offset, in twice the precision."""
        gaps = np.empty(len(integers))
        for block in blocks(len(gaps)):
            product, missing = self.only(block)._twofold()
            gaps[block] = ((product - integers[block]) - offset) + missing
        return gaps

    def _twofold(self) -> tuple[Floats, Floats]:
        """Shares as doubles and what is missing from them (Dekker's product)."""
        scaled, factor = self._scaled(), float(self.factor)
        product = scaled * factor
        high, low = _halves(scaled)
        factor_high, factor_low = _halves(factor)
        missing = ((high * factor_high - product) + high * factor_low + low * factor_high) + low * factor_low
        return product, missing + scaled * float(self.factor - Fraction(factor))


def _halves(number: _Number) -> tuple[_Number, _Number]:
    """A double, or an array of them, as a sum of two with half the bits each."""
    spread = number * _SPLITTER
    high = spread - (spread - number)
    return high, number - high


def _top(keys: NDArray[np.generic], count: int, error: float) -> tuple[Integers, Integers, float]:
    """Positions surely among the `count` largest, positions too near the cut to tell, and the cut, 0 < count <= n."""
    cut = np.partition(keys, len(keys) - count)[len(keys) - count]
    sure, possible = keys > cut + 2 * error, keys >= cut - 2 * error
    return np.flatnonzero(sure), np.flatnonzero(possible & ~sure), cut.item()


def _first(tied: Integers, count: int, tie_key: TieKey | None) -> Integers:
    """The first `count` of some tied sources: labels are looked at here and nowhere else."""
    if tie_key is None or count == len(tied):
        return tied[:count]
    *first, last, beyond = heapq.nsmallest(count + 1, tied.tolist(), key=tie_key)
    if tie_key(last) == tie_key(beyond):
        raise same_label(tie_key(last))
    return np.array([*first, last])


def same_label(label: str) -> AllocationError:
    """What is said of labels that must settle a tie between sources and can't."""
    return AllocationError(f"labels: more than one source is called {label!r}, so that labels can't settle their tie")


#: Largest budget whose shares doubles can tell from their neighbours with room to spare.
LARGEST_BUDGET: Final = 2**48
# Highest level that is tried beside utilities of at most 1, and steps after which a trial is left to exact decisions.
_HIGHEST: Final = 2.0**900
_STEPS: Final = 200
# Relative difference of levels at which a trial ends; what it leaves wrong, exact decisions correct.
_RESOLUTION: Final = 2.0**-40
# Rounds in which exact decisions may correct the doubles' view of which bounds bind.
_CORRECTIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpread:
    """Quotas, int64 of shape (K,), and the shares behind them, correctly rounded float64, made when asked for."""

    quotas: Integers
    shares: Callable[[], Floats]

    @classmethod
    def at(cls, quotas: Integers, free: slice | Integers, nearest: Callable[[], Floats]) -> ArraySpread:
        """Shares that are the quotas, but for sources between their bounds."""

        def shares() -> Floats:
            values = quotas.astype(np.float64)
            values[free] = nearest()
            return values

        return cls(quotas=quotas, shares=shares)


def filtered(
    utilities: Floats, lower: Integers, upper: Integers, budget: int, tie_key: TieKey | None = None
) -> ArraySpread | None:
    """Largest-remainder quotas at the water level of sources that have utility and room.

    Utilities are finite and positive, 0 <= lower < upper <= budget, of shape (K,), 1 <= K < 2**26. The budget lies
    strictly between the sums of the bounds and is at most `LARGEST_BUDGET`. `tie_key` as of `spread_arrays`.

    Returns:
        None in the rare case that exact decisions keep contradicting the doubles' view of which bounds bind.
    """
    doubles = Doubles.of(utilities)
    if int(upper.min()) == budget and not lower.any():
        level = Level.at(doubles, budget, doubles.total(), float(utilities.max()))
        return ArraySpread(quotas=_rounded(level, tie_key), shares=level.nearest)
    sides = _trial_sides(utilities, lower, upper, budget)
    for _ in range(_CORRECTIONS):
        trial = _level(doubles, lower, upper, sides, budget)
        if trial is None:
            return None
        corrected = trial.corrected(sides, lower, upper)
        if np.array_equal(corrected, sides):
            return _settled(trial, sides, lower, upper, tie_key)
        sides = corrected
    return None


def _settled(level: Level, sides: Sides, lower: Integers, upper: Integers, tie_key: TieKey | None) -> ArraySpread:
    """Bounds for the sources at them, rounded shares for the rest."""
    quotas, free = np.where(sides > 0, upper, lower), np.flatnonzero(sides == 0)
    if not free.size:
        return ArraySpread(quotas=quotas, shares=lambda: quotas.astype(np.float64))
    part = level.only(free)
    quotas[free] = _rounded(part, None if tie_key is None else lambda k: tie_key(int(free[k])))
    return ArraySpread.at(quotas, free, part.nearest)


def _rounded(level: Level, tie_key: TieKey | None) -> Integers:
    """Largest-remainder quotas of shares that sum to the level's budget."""
    whole, parts = level.parted()
    left = level.budget - int(whole.sum())
    if left:
        whole[level.largest(whole, parts, left, tie_key)] += 1
    return whole


def _trial_sides(utilities: Floats, lower: Integers, upper: Integers, budget: int) -> Sides:
    """Which bounds bind (1 the upper, -1 the lower, 0 neither), by doubles alone."""
    sides = np.empty(len(utilities), dtype=np.int8)
    rest: slice | Integers = slice(None)
    left = float(budget)
    while True:
        scaled = utilities / utilities.max()
        level = _trial_level(scaled, lower, upper, left)
        found = np.empty(len(scaled), dtype=np.int8)
        for block in blocks(len(scaled)):
            shares = scaled[block] * level
            found[block] = (shares > upper[block]).astype(np.int8) - (shares < lower[block])
        sides[rest] = found
        stay = np.flatnonzero(found <= 0)
        if level < _HIGHEST or not stay.size:
            return sides
        # The utilities of the rest are too small beside the largest to be seen from there.
        left -= float(upper[found > 0].sum())
        rest = stay if isinstance(rest, slice) else rest[stay]
        utilities, lower, upper = utilities[stay], lower[stay], upper[stay]


def _trial_level(scaled: Floats, lower: Integers, upper: Integers, budget: float) -> float:
    """A level in doubles: Newton's steps, kept between levels that are known to spend too little and too much."""
    least, most = 0.0, math.inf
    level = budget / float(scaled.sum())
    for _ in range(_STEPS):
        spent, slope = _census(scaled, lower, upper, level)
        step = level + (budget - spent) / slope if slope else math.inf
        if abs(step - level) <= level * _RESOLUTION or spent == budget or (spent < budget and level == _HIGHEST):
            break
        if spent < budget:
            least = level
        else:
            most = level
        if not least < step < most:
            step = _HIGHEST if most == math.inf else math.sqrt(least) * math.sqrt(most) if least else most / 2
        level = min(step, _HIGHEST)
    return level


def _census(scaled: Floats, lower: Integers, upper: Integers, level: float) -> tuple[float, float]:
    """What is spent at a level, and the utility of the sources between their bounds."""
    spent = slope = 0.0
    for block in blocks(len(scaled)):
        shares = scaled[block] * level
        clipped = np.minimum(np.maximum(shares, lower[block]), upper[block])
        spent += float(clipped.sum())
        slope += float((scaled[block] * (clipped == shares)).sum())
    return spent, slope


def _level(doubles: Doubles, lower: Integers, upper: Integers, sides: Sides, budget: int) -> Level | None:
    """The exact level of the sources between their bounds; of the last to reach its upper bound if there are none."""
    full = np.flatnonzero(sides > 0)
    left = budget - exact_sum(upper[full]) - exact_sum(lower[np.flatnonzero(sides < 0)])
    free = doubles.only(np.flatnonzero(sides == 0))
    if free.values.size:
        return Level.at(doubles, left, free.total(), float(free.values.max())) if left > 0 else None
    if left:
        return None
    with np.errstate(over="ignore"):
        last = full[[(upper[full] / doubles.values[full]).argmax()]]
    (total,) = doubles.only(last).integers()
    return Level.at(doubles, int(upper[last[0]]), total, float(doubles.values[last[0]]))


def exact_sum(values: Integers) -> int:
    """The sum of nonnegative integers, whatever its size; fewer than 2**31 of them."""
    if len(values) == 0:
        return 0
    if int(values.max()) < 2**62 // len(values):
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())

"""Largest remainders at the water level by doubles and, where those can't decide, exact integers.

The level is first sought in doubles alone. Which bounds bind there is then judged on exact numbers, and corrected if
need be; the answer is that of rational arithmetic (docs/decisions: exactness).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from calibudget.allocation.levels import Level, Sides, TieKey
from calibudget.allocation.residues import ExactDoubles, Floats, Integers, blocks, by_blocks

#: Largest budget whose shares doubles can tell from their neighbours with room to spare.
LARGEST_BUDGET: Final = 2**48
# The largest utility may stay unscaled within this of 1.
_NEAR_ONE: Final = 2.0**60
# Highest level that is tried beside utilities near 1, and steps after which a trial is left to exact decisions.
_HIGHEST: Final = 2.0**900
_STEPS: Final = 200
# Rounds in which exact decisions may correct the doubles' view of which bounds bind.
_CORRECTIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """A level and the sources' places at it.

    Attributes:
        level: the exact level.
        free: the sources whose shares are between their bounds, ascending.
        quotas: largest-remainder quotas, shape (K,).
    """

    level: Level
    free: Integers
    quotas: Integers

    def shares(self) -> Floats:
        """The shares as correctly rounded doubles, shape (K,); those at a bound are the quotas."""
        shares = self.quotas.astype(np.float64)
        if self.free.size:
            shares[self.free] = self.level.nearest(self.free)
        return shares


def filtered(
    utilities: Floats, lower: Integers, upper: Integers, budget: int, tie_key: TieKey | None = None
) -> Filtered | None:
    """Largest-remainder quotas at the water level of sources that have utility and room.

    Args:
        utilities: finite and positive, shape (K,), 1 <= K < 2**26.
        lower: bounds of at least 0, shape (K,).
        upper: bounds above lower and at most the budget, shape (K,).
        budget: strictly between the sums of the bounds, at most `LARGEST_BUDGET`.
        tie_key: from a position to what settles ties, ascending; without it the position does.

    Returns:
        None in the rare case that exact decisions keep contradicting the doubles' view of which bounds bind.
    """
    doubles = ExactDoubles.of(utilities)
    if int(upper.min()) == budget and not lower.any():
        level = Level.at(doubles, budget, doubles.total(), float(utilities.max()))
        return _filtered(level, np.arange(len(utilities)), lower, tie_key)
    sides = _trial_sides(utilities, lower, upper, budget)
    for _ in range(_CORRECTIONS):
        trial = _level(doubles, lower, upper, sides, budget)
        if trial is None:
            return None
        corrected = trial.corrected(sides, lower, upper)
        if np.array_equal(corrected, sides):
            settled = lower.copy()
            full = np.flatnonzero(sides > 0)
            settled[full] = upper[full]
            return _filtered(trial, np.flatnonzero(sides == 0), settled, tie_key)
        sides = corrected
    return None


def _trial_sides(utilities: Floats, lower: Integers, upper: Integers, budget: int) -> Sides:
    """Which bounds bind (1 the upper, -1 the lower, 0 neither), by doubles alone."""
    sides = np.zeros(len(utilities), dtype=np.int8)
    rest = np.arange(len(utilities))
    low, high, left = lower.astype(np.float64), upper.astype(np.float64), float(budget)
    while True:
        largest = utilities.max()
        scaled = utilities if 1 / _NEAR_ONE < largest < _NEAR_ONE else utilities / largest
        level = _trial_level(scaled, low, high, left)
        sides[rest] = by_blocks(partial(_sides, level), scaled, low, high)
        if level < _HIGHEST:
            return sides
        # The utilities of the rest are too small beside the largest to be seen from there.
        over = sides[rest] > 0
        left -= float(high[over].sum())
        rest, utilities, low, high = rest[~over], utilities[~over], low[~over], high[~over]
        if not rest.size:
            return sides


def _sides(level: float, utilities: Floats, low: Floats, high: Floats) -> Sides:
    shares = utilities * level
    return (shares > high).astype(np.int8) - (shares < low)


def _trial_level(scaled: Floats, low: Floats, high: Floats, budget: float) -> float:
    """A level in doubles: Newton's steps, kept between levels that are known to spend too little and too much."""
    least, most = 0.0, math.inf
    level = budget / float(scaled.sum())
    for _ in range(_STEPS):
        spent, settled, total = _census(scaled, low, high, level)
        step = (budget - settled) / total if total else math.inf
        if spent == budget or step == level or (spent < budget and level == _HIGHEST):
            break
        if spent < budget:
            least = level
        else:
            most = level
        if not least < step < most:
            step = _HIGHEST if most == math.inf else math.sqrt(least) * math.sqrt(most) if least else most / 2
        level = min(step, _HIGHEST)
    return level


def _census(scaled: Floats, low: Floats, high: Floats, level: float) -> tuple[float, float, float]:
    """At a level: what is spent, the part of it spent by sources at a bound, and the utility of the others."""
    spent = settled = total = 0.0
    for block in blocks(len(scaled)):
        shares = scaled[block] * level
        clipped = np.minimum(np.maximum(shares, low[block]), high[block])
        between = clipped == shares
        spent += float(clipped.sum())
        total += float((scaled[block] * between).sum())
        settled += float((clipped * ~between).sum())
    return spent, settled, total


def _level(doubles: ExactDoubles, lower: Integers, upper: Integers, sides: Sides, budget: int) -> Level | None:
    """The exact level of the sources between their bounds; of the last to reach its upper bound if there are none."""
    full = np.flatnonzero(sides > 0)
    left = budget - exact_sum(upper[full]) - exact_sum(lower[np.flatnonzero(sides < 0)])
    free = doubles.values[np.flatnonzero(sides == 0)]
    if free.size:
        return Level.at(doubles, left, doubles.total(free), float(free.max())) if left > 0 else None
    if left:
        return None
    with np.errstate(over="ignore"):
        last = full[[(upper[full] / doubles.values[full]).argmax()]]
    (total,) = doubles.integers(last)
    return Level.at(doubles, int(upper[last[0]]), total, float(doubles.values[last[0]]))


def _filtered(level: Level, free: Integers, settled: Integers, tie_key: TieKey | None) -> Filtered:
    """Round the shares of the free sources; the others have their settled quotas."""
    if not free.size:
        return Filtered(level=level, free=free, quotas=settled)
    whole = level.whole_parts(free)
    left = level.residues.budget - int(whole.sum())
    if left:
        whole[level.largest(free, whole, left, tie_key)] += 1
    if free.size < settled.size:
        quotas = settled.copy()
        quotas[free] = whole
        whole = quotas
    return Filtered(level=level, free=free, quotas=whole)


def exact_sum(values: Integers) -> int:
    """The sum of nonnegative integers, whatever its size; fewer than 2**31 of them."""
    if len(values) == 0:
        return 0
    if int(values.max()) < 2**62 // len(values):
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())

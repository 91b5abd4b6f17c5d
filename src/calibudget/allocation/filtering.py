"""Largest remainders at the water level by doubles and, where those can't decide, exact integers.

The level is first sought in doubles alone. Which bounds bind there is then judged on exact numbers, and corrected if
need be; the answer is that of rational arithmetic (docs/decisions: exactness).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibudget.allocation.levels import Level, Sides, TieKey
from calibudget.allocation.residues import Doubles, Floats, Integers, blocks

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
class Filtered:
    """Quotas, and the level of the sources between their bounds.

    Attributes:
        quotas: largest-remainder quotas, shape (K,).
        free: where the sources are whose shares are between their bounds.
        level: their level; None without such sources.
    """

    quotas: Integers
    free: slice | Integers
    level: Level | None

    def shares(self) -> Floats:
        """The shares as correctly rounded doubles, shape (K,); those at a bound are the quotas."""
        shares = self.quotas.astype(np.float64)
        if self.level is not None:
            shares[self.free] = self.level.nearest()
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
    doubles = Doubles.of(utilities)
    if int(upper.min()) == budget and not lower.any():
        level = Level.at(doubles, budget, doubles.total(), float(utilities.max()))
        return Filtered(quotas=_rounded(level, tie_key), free=slice(None), level=level)
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


def _settled(level: Level, sides: Sides, lower: Integers, upper: Integers, tie_key: TieKey | None) -> Filtered:
    """Bounds for the sources at them, rounded shares for the rest."""
    quotas = lower.copy()
    full, free = np.flatnonzero(sides > 0), np.flatnonzero(sides == 0)
    quotas[full] = upper[full]
    if not free.size:
        return Filtered(quotas=quotas, free=free, level=None)
    part = level.only(free)
    quotas[free] = _rounded(part, None if tie_key is None else lambda k: tie_key(int(free[k])))
    return Filtered(quotas=quotas, free=free, level=part)


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

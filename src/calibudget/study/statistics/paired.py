"""Paired differences between two policies: by seed, and over tasks and seeds (paper 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final, Literal, TypeVar

from calibudget.errors import StudyError

#: Which way a metric is better.
Direction = Literal["higher", "lower"]

#: Differences as small as this beside the numbers that they are of are rounding, and count as none.
_ROUNDING: Final = 1e-12

Key = TypeVar("Key", int, tuple[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Paired differences of one metric, policy minus comparator, in the metric's unit.

    Attributes:
        by_seed: the difference of each seed, in ascending order.
        mean: their mean.
        sd: their standard deviation (ddof 1), 0 where they differ by rounding alone; None for one seed, which says
            nothing of spread.
    """

    by_seed: Mapping[int, float]
    mean: float
    sd: float | None

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.by_seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wins:
    """How many of the paired differences go the policy's way."""

    won: int
    tied: int
    lost: int

    @property
    def total(self) -> int:
        """Number of comparisons."""
        return self.won + self.tied + self.lost


def effects(policy: Mapping[int, float], comparator: Mapping[int, float]) -> Effects:
    """Differences by seed, their mean and standard deviation (paper, Table 2).

    Raises:
        StudyError: no seed, or a seed that one side lacks; it is named.
    """
    differences = _differences(policy, comparator, "seed")
    values = list(differences.values())
    rounding = _ROUNDING * max(map(abs, (*policy.values(), *comparator.values())))
    sd = None if len(values) == 1 else 0.0 if max(values) - min(values) <= rounding else stdev(values)
    return Effects(by_seed=differences, mean=fmean(values), sd=sd)


def wins(
    policy: Mapping[tuple[str, int], float], comparator: Mapping[tuple[str, int], float], direction: Direction
) -> Wins:
    """Comparisons over tasks and seeds that the policy wins (paper 3.3: 15 of 24); ties are counted apart.

    Args:
        policy: the metric by task and seed.
        comparator: the same of what it is compared with.
        direction: which way the metric is better.

    Raises:
        StudyError: nothing to compare, or a task and seed that one side lacks.
    """
    sign = 1 if direction == "higher" else -1
    gains = [sign * one for one in _differences(policy, comparator, "task and seed").values()]
    return Wins(won=sum(one > 0 for one in gains), tied=gains.count(0), lost=sum(one < 0 for one in gains))


def _differences(policy: Mapping[Key, float], comparator: Mapping[Key, float], what: str) -> dict[Key, float]:
    if not policy:
        raise StudyError(f"there is no {what} to compare")
    lacking = sorted(policy.keys() ^ comparator.keys())
    if lacking:
        side = "the comparator" if lacking[0] in policy else "the policy"
        raise StudyError(f"{side} lacks the {what} {lacking[0]!r}, so it can't be paired")
    return {key: _difference(policy[key], comparator[key]) for key in sorted(policy)}


def _difference(one: float, other: float) -> float:
    return 0.0 if math.isclose(one, other, rel_tol=_ROUNDING) else one - other

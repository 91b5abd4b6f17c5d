"""How far two quota vectors lie apart, and whether what moved goes with what was gained (paper 3.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calibudget.allocation.stability import pearson, spearman
from calibudget.errors import StudyError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaShift:
    """From a comparator's quotas to a policy's.

    Attributes:
        by_source: change of each source's quota, policy minus comparator, in code-point order.
        moved: units that changed their source, half the L1 distance.
        share: `moved` over the budget, 0 to 1.
        largest: largest change of one source, without sign.
    """

    by_source: Mapping[str, int]
    moved: int
    share: float
    largest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """Pearson's and Spearman's correlation of as many pairs; None where one side doesn't vary."""

    pearson: float | None
    spearman: float | None
    pairs: int


def quota_shift(policy: Mapping[str, int], comparator: Mapping[str, int]) -> QuotaShift:
    """Compare two quota vectors of one budget.

    Raises:
        StudyError: other sources, other budgets, or a budget of 0.
    """
    lacking = sorted(policy.keys() ^ comparator.keys())
    if lacking:
        raise StudyError(f"only one of the two allocations has the source {lacking[0]!r}")
    budgets = {sum(policy.values()), sum(comparator.values())}
    if len(budgets) != 1 or 0 in budgets:
        raise StudyError(f"two allocations are compared at one budget above 0, not at {sorted(budgets)}")
    changes = {label: policy[label] - comparator[label] for label in sorted(policy)}
    moved = sum(map(abs, changes.values())) // 2
    return QuotaShift(
        by_source=changes,
        moved=moved,
        share=moved / budgets.pop(),
        largest=max(map(abs, changes.values())),
    )


def correlations(first: Sequence[float], second: Sequence[float]) -> Correlations:
    """Correlations of paired values, from exact sums of what the floats hold.

    Raises:
        StudyError: unlike numbers of values, or one that isn't finite.
    """
    if len(first) != len(second):
        raise StudyError(f"correlations are of pairs, not of {len(first)} and {len(second)} values")
    if not all(map(math.isfinite, (*first, *second))):
        raise StudyError("correlations are of finite values")
    exact = [[Fraction(value) for value in values] for values in (first, second)]
    return Correlations(pearson=pearson(*exact), spearman=spearman(*exact), pairs=len(first))

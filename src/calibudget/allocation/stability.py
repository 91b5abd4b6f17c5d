"""How much quotas move: with the bootstrap replicate, and with the calibration split.

Quotas over a grid of budgets, floors and exponents: what would the policy do if?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from statistics import fmean, stdev
from typing import TypeVar

from calibudget.allocation.bounds import Amount
from calibudget.allocation.exact.numbers import count_within_doubles
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import policy_named
from calibudget.allocation.source_labels import require_same_labels, sorted_labels
from calibudget.allocation.utility_factors import doubled_ranks
from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import shown
from calibudget.records import AllocationPlan, Exponents

Exact = TypeVar("Exact", int, Fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The paper's stability audit over allocations from independently drawn calibration splits (paper 3.4).

    Attributes:
        splits: number of allocations, at least 2.
        mean_quota_sd: mean over sources of the standard deviation (ddof 1) of a source's quotas, units.
        largest_range: largest difference between two quotas of one source, units.
        smallest_spearman: smallest rank correlation between two allocations, equal quotas sharing a rank; None
            where some allocation gives all sources the same quota.
        smallest_pearson: smallest linear correlation between two allocations; None likewise.
    """

    splits: int
    mean_quota_sd: float
    largest_range: int
    smallest_spearman: float | None
    smallest_pearson: float | None


def stability(allocations: Sequence[Mapping[str, int]]) -> Stability:
    """Compare quotas, by label, of at least two allocations of the same sources with other calibration splits.

    Raises:
        InputTypeError, AllocationError: fewer than two allocations, no sources, other sources in one of them, or
            quotas that aren't counts.

    Source: paper 3.4, modern-task and stability audits.
    """
    given: object = allocations
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputTypeError(f"allocations must be a sequence of quotas by label, not {shown(allocations)}")
    if len(allocations) < 2 or not (labels := sorted_labels(allocations[0])):
        raise AllocationError("stability compares at least two allocations of at least one source")
    rows = []
    for number, allocation in enumerate(allocations, start=1):
        require_same_labels(labels, allocation, f"allocation {number}", "allocation 1")
        quota = f"the quota in allocation {number}"
        rows.append([count_within_doubles(allocation[label], quota, label) for label in labels])
    columns = list(zip(*rows, strict=True))
    return Stability(
        splits=len(rows),
        mean_quota_sd=fmean(stdev(column) for column in columns),
        largest_range=max(max(column) - min(column) for column in columns),
        smallest_spearman=_smallest(spearman(*pair) for pair in combinations(rows, 2)),
        smallest_pearson=_smallest(pearson(*pair) for pair in combinations(rows, 2)),
    )


def spearman(first: Sequence[Exact], second: Sequence[Exact]) -> float | None:
    """Rank correlation, equal values sharing a rank; None where one side doesn't vary."""
    return pearson(doubled_ranks(first), doubled_ranks(second))


def pearson(first: Sequence[Exact], second: Sequence[Exact]) -> float | None:
    """Linear correlation of as many integers or fractions, from exact sums; None where one side doesn't vary."""
    count = len(first)
    mixed = count * sum(x * y for x, y in zip(first, second, strict=True)) - sum(first) * sum(second)
    spreads = [count * sum(x * x for x in values) - sum(values) ** 2 for values in (first, second)]
    if not all(spreads):
        return None
    size = math.sqrt(Fraction(mixed * mixed) / (spreads[0] * spreads[1]))
    return -size if mixed < 0 else size


def _smallest(correlations: Iterable[float | None]) -> float | None:
    found = list(correlations)
    return None if None in found else min(one for one in found if one is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One point of the grid.

    Attributes:
        budget: B.
        floor: the common floor.
        exponents: exponents of the factors.
        residual_budget: what the floors leave; None where the point isn't feasible.
        quotas: by label in code-point order; None where the point isn't feasible.
        refusal: why it isn't; None where it is.
    """

    budget: int
    floor: Amount | str
    exponents: Exponents
    residual_budget: int | None
    quotas: Mapping[str, int] | None
    refusal: str | None


def what_if(
    request: AllocationRequest,
    *,
    budgets: Sequence[int],
    common_floors: Sequence[Amount | str],
    exponents: Sequence[Exponents] = (Exponents(),),
    planned: Callable[[AllocationRequest], AllocationPlan] = plan,
) -> tuple[WhatIf, ...]:
    """The policy's quotas at every combination of budget, common floor and exponents, budgets slowest.

    A combination that no quotas satisfy is part of the answer, not an error.

    Args:
        request: everything else of the allocation, own floors (`floors`) included.
        budgets: the budgets to try.
        common_floors: the floors to try, for every source that has none of its own.
        exponents: the exponents to try.
        planned: makes the plan of a point, as `plan` does.

    Raises:
        InputTypeError: budgets, floors or exponents that aren't a sequence.
        AllocationError: an unknown policy.

    Source: paper 3.4, floor sensitivity: f = 950 beside f = 1,150.
    """
    policy_named(request.policy)
    for name, values in (("budgets", budgets), ("common_floors", common_floors), ("exponents", exponents)):
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputTypeError(f"{name} must be a sequence of values to try, not {shown(values)}")

    def point(budget: int, floor: Amount | str, powers: Exponents) -> WhatIf:
        place = partial(WhatIf, budget=budget, floor=floor, exponents=powers)
        try:
            made = planned(replace(request, budget=budget, floor=floor, exponents=powers))
        except AllocationError as error:
            return place(residual_budget=None, quotas=None, refusal=str(error))
        return place(residual_budget=made.residual_budget, quotas=made.quotas, refusal=None)

    return tuple(point(*place) for place in product(budgets, common_floors, exponents))

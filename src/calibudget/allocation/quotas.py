"""The one primitive of the allocator: integers between bounds, as close as whole units allow to a common level.

The paper's rule: every source gets its floor, and the primitive spreads the residual budget. Both return an
`Allocation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, gt, sub
from typing import Any, Self

from calibudget.allocation.bounds import Group, spread_groups
from calibudget.allocation.exact.budget_spread import Spread, spread
from calibudget.allocation.exact.numbers import Real, as_count, as_counts, highest_count, lowest_count
from calibudget.allocation.source_labels import (
    in_order,
    likely,
    listed,
    require_mapping,
    require_same_labels,
    sorted_labels,
)
from calibudget.errors import AllocationError
from calibudget.messages import counted, shown


class _MadeLater:
    """Mappings of an allocation that are made when one is first asked for: a million labels take 0.2 s each."""

    __slots__ = ("_columns",)

    def __getattr__(self, name: str) -> Any:
        """Called only for a field that isn't set yet, or for what no allocation has."""
        if name not in ("shares", "floor_quotas"):
            raise AttributeError(f"an allocation has no {name}")
        labels, shares, floor_quotas = self._columns
        object.__setattr__(self, "shares", dict(zip(labels, shares(), strict=True)))
        object.__setattr__(self, "floor_quotas", dict(zip(labels, floor_quotas, strict=True)))
        return getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation(_MadeLater):
    """Exact integer quotas and the real-valued shares they round; mappings are keyed by label in code-point order.

    Attributes:
        budget: B, the sum of the quotas.
        quotas: q_k, the integers.
        shares: t_k, the real-valued shares of the residual (nearest doubles of exact rationals).
        floor_quotas: the part of each quota that the floor guarantees.
    """

    budget: int
    quotas: dict[str, int]
    shares: dict[str, float]
    floor_quotas: dict[str, int]

    @classmethod
    def of(
        cls,
        budget: int,
        labels: Sequence[str],
        quotas: Iterable[int],
        shares: Callable[[], Iterable[float]],
        floor_quotas: Sequence[int],
    ) -> Self:
        """An allocation of columns in the order of the labels, its shares and floor quotas mapped when asked for."""
        made = cls.__new__(cls)
        object.__setattr__(made, "budget", budget)
        object.__setattr__(made, "quotas", dict(zip(labels, quotas, strict=True)))
        object.__setattr__(made, "_columns", (labels, shares, floor_quotas))
        return made


def apportion(
    utilities: Mapping[str, Real],
    budget: int,
    *,
    lower: Mapping[str, Real] | None = None,
    upper: Mapping[str, Real] | None = None,
) -> Allocation:
    """Spread a budget over sources in proportion to their utilities, between bounds, in whole units.

    The share of a source is clip(level * utility, lower, upper), the level being the one at which the shares sum
    to the budget. The quota is the share rounded down, plus one unit each for the largest fractional parts, ties
    by label in code-point order. The answer is that of rational arithmetic on the numbers as given, whatever
    their type: independent of platform, of order, and of exact scaling of the utilities.

    Args:
        utilities: one nonnegative finite number a source; a float means the rational that it holds. Sources of
            utility 0 stay at their lower bound unless all others are full; what is then left is spread over them
            at equal weight.
        budget: units to spend, an integer >= 0.
        lower: least units a source, default 0; a real bound is rounded up to the next integer.
        upper: most units a source, default no bound; a real bound is rounded down.

    Returns:
        Quotas that sum to the budget, shares, and `lower` as floor quotas, labels in code-point order.

    Raises:
        InputTypeError: a number of the wrong type (a bool, a text, 3.0 as the budget) or labels that aren't texts.
        AllocationError: a negative or infinite number, keys that differ, bounds that cross or can't hold the budget.

    Source: paper 2.3 and its appendix (largest remainders, ties by label); the level where bounds bind is ours.
    """
    labels = sorted_labels(utilities)
    budget = as_count(budget, "the budget")
    low, high = _integer_bounds(labels, budget, lower, upper)
    result = spread(in_order(labels, utilities), labels, low, high, budget)
    return Allocation.of(budget, labels, result.quotas, result.shares, low)


def _integer_bounds(
    labels: list[str], budget: int, lower: Mapping[str, Real] | None, upper: Mapping[str, Real] | None
) -> tuple[list[int], list[int]]:
    """Bounds in whole units in the order of the labels, between whose sums the budget lies."""
    low, high = [0] * len(labels), [budget] * len(labels)
    if labels and lower is None and upper is None:
        return low, high
    if lower is not None:
        require_same_labels(labels, lower, "lower", "utilities")
        low = as_counts(in_order(labels, lower), "the lower bound", labels, lowest_count)
        high = [max(budget, *low)] * len(low) if low else []
    if upper is not None:
        require_same_labels(labels, upper, "upper", "utilities")
        high = as_counts(in_order(labels, upper), "the upper bound", labels, highest_count)
    _require_feasible(labels, low, high, budget)
    return low, high


def _require_feasible(labels: Sequence[str], low: Sequence[int], high: Sequence[int], budget: int) -> None:
    if any(map(gt, low, high)):
        label, least, most = next(row for row in zip(labels, low, high, strict=True) if row[1] > row[2])
        raise AllocationError(f"the lower bound of {label!r} is {least:,} and its upper bound only {most:,}")
    if not labels and budget:
        raise AllocationError(f"there are no sources to spend a budget of {budget:,} on")
    if sum(low) > budget:
        raise AllocationError(
            f"the lower bounds come to {sum(low):,}, {sum(low) - budget:,} above the budget {budget:,}"
        )
    if sum(high) < budget:
        raise AllocationError(
            f"the upper bounds come to {sum(high):,}, {budget - sum(high):,} short of the budget {budget:,}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A feasible budget over sources with floors and capacities; all lists in the order of `labels`.

    Attributes:
        labels: the sources in code-point order, K of them.
        budget: B.
        pool_sizes: N_k.
        floor_quotas: the part of each quota that the floor guarantees, min(N_k, floor).
        residual_capacities: c_k, what the pool and the cap leave above the floor quota.
        groups: groups that hold each source once, with bounds in whole units; none if empty.
    """

    labels: list[str]
    budget: int
    pool_sizes: list[int]
    floor_quotas: list[int]
    residual_capacities: list[int]
    groups: Mapping[str, Group] = field(default_factory=dict)

    @property
    def residual_budget(self) -> int:
        """R, what the floors leave of the budget."""
        return self.budget - sum(self.floor_quotas)

    def solve(self, utilities: Sequence[object]) -> Spread:
        """Quotas and exact shares above the floor quotas, of utilities of shape (K,): the paper's rule."""
        rooms, budget = self.residual_capacities, self.residual_budget
        if self.groups:
            return spread_groups(self.groups, utilities, self.labels, rooms, budget, self.floor_quotas)
        return spread(utilities, self.labels, [0] * len(rooms), rooms, budget)


def pose(
    pool_sizes: Mapping[str, int],
    budget: int,
    floor: int = 0,
    *,
    floors: Mapping[str, int] | None = None,
    caps: Mapping[str, int] | None = None,
    excluded: Sequence[str] = (),
) -> Problem:
    """Check counts and constraints and put them in order; arguments as of `allocate`.

    `excluded` sources get no more than their floor quota.

    Raises:
        InputTypeError: a count that isn't an integer, a label that isn't a text.
        AllocationError: a negative count, a floor or cap for an unknown source, a cap below its floor, floors
            above the budget, a budget above what pools and caps hold; the message gives the numbers.
    """
    labels = sorted_labels(pool_sizes)
    budget = as_count(budget, "the budget")
    floor = as_count(floor, "the floor")
    sizes = as_counts(in_order(labels, pool_sizes), "the pool size", labels)
    own_floors = _own_counts(labels, floors, "floor")
    own_caps = _own_counts(labels, caps, "cap")
    floors_in_order = [own_floors.get(label, floor) for label in labels]
    floor_quotas = [size if size < least else least for size, least in zip(sizes, floors_in_order, strict=True)]
    most = (
        [min(size, own_caps.get(label, size)) for label, size in zip(labels, sizes, strict=True)] if own_caps else sizes
    )
    rooms = list(map(sub, most, floor_quotas))
    if own_caps and min(rooms) < 0:
        label, least, limit = next(row for row in zip(labels, floor_quotas, most, strict=True) if row[1] > row[2])
        raise AllocationError(
            f"the cap of {label!r} is {limit:,}, below its floor quota of {least:,}: "
            f"raise the cap, or give the source a floor of its own of at most {limit:,}"
        )
    barred = set(excluded)
    if barred:
        rooms = [0 if label in barred else room for label, room in zip(labels, rooms, strict=True)]
    problem = Problem(
        labels=labels, budget=budget, pool_sizes=sizes, floor_quotas=floor_quotas, residual_capacities=rooms
    )
    _require_affordable(problem, barred)
    return problem


def allocate(
    pool_sizes: Mapping[str, int],
    utilities: Mapping[str, Real],
    budget: int,
    floor: int = 0,
    *,
    floors: Mapping[str, int] | None = None,
    caps: Mapping[str, int] | None = None,
) -> Allocation:
    """Exact integer quotas: min(pool size, floor) for every source, the rest in proportion to the utilities.

    Args:
        pool_sizes: N_k, candidates a source, integers >= 0.
        utilities: u_k >= 0, one for each source of `pool_sizes`; a float means the rational that it holds.
        budget: B, an integer from the sum of the floor quotas to the sum of the pools (or caps).
        floor: f, an integer >= 0, for every source that `floors` doesn't name.
        floors: own floors of some sources.
        caps: most units of some sources.

    Returns:
        Quotas with min(N_k, floor) <= q_k <= min(N_k, cap) that sum to the budget; shares of the residual budget.

    Raises:
        InputTypeError, AllocationError: anything that no quota vector satisfies; see `pose` and `apportion`.

    Source: paper 2.3, floor-protected residual allocation, and the appendix's deterministic contract.
    """
    problem = pose(pool_sizes, budget, floor, floors=floors, caps=caps)
    require_same_labels(problem.labels, utilities, "utilities", "pool_sizes")
    extra = problem.solve(in_order(problem.labels, utilities))
    quotas = map(add, problem.floor_quotas, extra.quotas)
    return Allocation.of(problem.budget, problem.labels, quotas, extra.shares, problem.floor_quotas)


def _own_counts(labels: Sequence[str], values: Mapping[str, int] | None, name: str) -> dict[str, int]:
    if values is None:
        return {}
    require_mapping(values, f"{name}s")
    known = set(labels)
    unknown = sorted((label for label in values if label not in known), key=lambda label: shown(label, str))
    if unknown:
        raise AllocationError(f"{name}s names {listed(unknown)}, but {likely(unknown[0], labels)}")
    return {label: as_count(value, f"the {name}", label) for label, value in values.items()}


def _require_affordable(problem: Problem, excluded: set[str]) -> None:
    budget, floors, room = problem.budget, sum(problem.floor_quotas), sum(problem.residual_capacities)
    if not problem.labels and budget:
        raise AllocationError(f"there are no sources to spend a budget of {budget:,} on")
    if floors > budget:
        raise AllocationError(
            f"the floors of {counted(len(problem.labels), 'source')} come to {floors:,}, "
            f"{floors - budget:,} above the budget {budget:,}: "
            f"raise the budget or lower the floors ({budget // len(problem.labels):,} each always fits)"
        )
    if floors + room >= budget:
        return
    pools = sum(problem.pool_sizes)
    if budget > pools:
        raise AllocationError(
            f"the budget {budget:,} is {budget - pools:,} above all pools together ({pools:,}): take a smaller "
            "budget, or let examples repeat with max_repeats"
        )
    held_back = f"the weights of 0 ({listed(sorted(excluded))}) and the caps" if excluded else "the caps"
    raise AllocationError(
        f"{held_back} leave {floors + room:,} of {pools:,} units, {budget - floors - room:,} short of the budget "
        f"{budget:,}: raise them or take a smaller budget"
    )

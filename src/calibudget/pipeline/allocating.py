"""From files, sizes or a run directory to one plan, or to every policy's plan side by side."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibudget.allocation import POLICIES, Amount, Signal, plan, pooled_quotas
from calibudget.errors import AllocationError
from calibudget.pipeline.bounds import bounds_of
from calibudget.pipeline.pools import Pools
from calibudget.recipe import FLOOR_POLICY, UNSCORED_POLICIES, Recipe
from calibudget.records import AllocationPlan, Exponents, Statistics, Unit
from calibudget.selection import exposures
from calibudget.store import read_splits, read_statistics, statistics_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInputs:
    """Everything that any policy may ask for; what isn't there is None."""

    pool_sizes: Mapping[str, int]
    budget: int
    floor: Amount | str = 0
    floors: Mapping[str, Amount | str] | None = None
    caps: Mapping[str, Amount | str] | None = None
    groups: Mapping[str, Any] | None = None
    statistics: Statistics | None = None
    statistics_sha256: str | None = None
    weights: Mapping[str, float] | None = None
    pooled: Mapping[str, int] | None = None
    signal: Signal = "error_rate"
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    unit: Unit = "examples"


def inputs_of_recipe(recipe: Recipe, pools: Pools, statistics: Statistics | None) -> AllocationInputs:
    """What a recipe's own policy is given.

    Floors and caps count what earlier rounds spent: a source that has its floor already needs no more of it.

    Args:
        recipe: budget, floors, caps, weights and whatever else it says of the allocation.
        pools: the candidates.
        statistics: the calibration statistics, None where nothing is scored.
    """
    return AllocationInputs(
        pool_sizes=pools.sizes,
        budget=recipe.budget_total,
        statistics=statistics,
        statistics_sha256=None if statistics is None else statistics_sha256(statistics),
        weights=recipe.weights,
        pooled=pooled_draw(pools, recipe.budget_total) if recipe.policy == "pooled" else None,
        signal=recipe.signal,
        exponents=recipe.utility_exponents,
        need_transform=recipe.need_transform,
        unit=recipe.unit,
        **bounds_of(recipe, pools),
    )


def plan_recipe(recipe: Recipe, pools: Pools, statistics: Statistics | None) -> AllocationPlan:
    """The plan of a recipe's own policy.

    Under a token budget the candidates that are longer than their source's quota leave the pools, and the policy is
    asked again, until none is left: the pools only shrink, so this ends.

    Raises:
        AllocationError: the budget can't be met; under a token budget what left for its length is told.
    """
    fitting = pools if pools.tokens is None else _settled(recipe, pools, statistics)
    return plan_allocation(recipe.policy, inputs_of_recipe(recipe, fitting, statistics))


def _settled(recipe: Recipe, pools: Pools, statistics: Statistics | None) -> Pools:
    """The pools without the candidates that are longer than the quota which the policy gives their source."""
    pools.require_room(recipe.budget_total)
    limits: dict[str, int] = {}
    while True:
        fitting = pools.within(limits)
        try:
            plan = plan_allocation(recipe.policy, inputs_of_recipe(recipe, fitting, statistics), intervals=False)
        except AllocationError as error:
            if not limits:
                raise
            left = ", ".join(f"{label}: longer than {limit:,} tokens" for label, limit in sorted(limits.items()))
            raise AllocationError(f"{error}; examples longer than their source's quota had left ({left})") from error
        tight = {label: quota for label, quota in plan.quotas.items() if fitting.longest(label) > quota}
        if not tight:
            return fitting
        limits |= tight


def feasible_floors(recipe: Recipe, pools: Pools) -> dict[str, int]:
    """The floor quotas; budgets, floors and caps that can't be met are refused before anything costly begins.

    Nothing is scored yet, so a policy that needs scores is stood in for by one that has the same bounds.
    """
    pools.require_room(recipe.budget_total)
    policy = recipe.policy if recipe.policy in UNSCORED_POLICIES else "floor-sqrt"
    plan = plan_allocation(policy, inputs_of_recipe(recipe, pools, None), intervals=False)
    return {label: row.floor_quota for label, row in plan.sources.items()}


def plan_allocation(policy: str, inputs: AllocationInputs, *, intervals: bool = True) -> AllocationPlan:
    """The plan of one policy; `floor` spends the sources' own floors alone, and its budget is what they come to."""
    if policy == FLOOR_POLICY:
        whole = plan_allocation("floor-sqrt", inputs, intervals=False)
        floors = replace(inputs, budget=whole.budget - whole.residual_budget, groups=None)
        return replace(plan_allocation("floor-sqrt", floors, intervals=False), policy=FLOOR_POLICY)
    return plan(policy, **fields_of(inputs), intervals=intervals)


def fields_of(inputs: AllocationInputs) -> dict[str, Any]:
    """The inputs by name, as `allocation.plan` takes them."""
    return {name: getattr(inputs, name) for name in AllocationInputs.__slots__}


def compare_policies(inputs: AllocationInputs) -> dict[str, AllocationPlan]:
    """The plans of all policies that these inputs can feed, in the order of `POLICIES`."""
    return {policy: plan_allocation(policy, inputs, intervals=False) for policy in POLICIES if can_feed(inputs, policy)}


def can_feed(inputs: AllocationInputs, policy: str) -> bool:
    """Whether the inputs hold what a policy needs."""
    wants = POLICIES[policy].wants
    if policy == "learning-curve":
        return inputs.statistics is not None and all(
            row.slope is not None for row in inputs.statistics.sources.values()
        )
    if policy == "val-error-floor" and inputs.signal == "error_rate":
        return inputs.statistics is not None and all(
            row.error_rate is not None for row in inputs.statistics.sources.values()
        )
    if policy == "pooled" and (inputs.caps or inputs.groups):
        return False
    return wants is None or getattr(inputs, wants) is not None


def inputs_from_files(
    *,
    statistics: Path | None,
    sizes: Mapping[str, int] | None,
    splits: Path | None,
    max_repeats: int = 1,
    **fields: object,
) -> AllocationInputs:
    """Inputs whose pool sizes and signals come from a `statistics.json` or from sizes; the other fields are given.

    Args:
        statistics: a `statistics.json`, or None.
        sizes: pool sizes, where there are no statistics.
        splits: a `splits.parquet`, from whose candidates the pooled policy draws.
        max_repeats: how often each candidate may be drawn; it multiplies the pools.
        fields: the other fields of `AllocationInputs`.
    """
    read = None if statistics is None else read_statistics(statistics)
    if read is not None:
        sizes = {label: row.pool_size for label, row in read.sources.items()}
    return AllocationInputs(
        pool_sizes={label: size * max_repeats for label, size in (sizes or {}).items()},
        statistics=read,
        statistics_sha256=None if read is None else statistics_sha256(read),
        pooled=None if splits is None else pooled_from_splits(splits, int(str(fields["budget"])), max_repeats),
        **fields,  # type: ignore[arg-type]
    )


def pooled_from_splits(splits: Path, budget: int, max_repeats: int = 1) -> dict[str, int]:
    """Quotas of the pooled draw from the candidates that a `splits.parquet` lists."""
    read = read_splits(splits)
    queues = {label: exposures(label, ids.candidates, max_repeats) for label, ids in read.sources.items()}
    pools = Pools(queues=queues, tokens=None, selection_seed=read.selection_seed, max_repeats=max_repeats)
    return pooled_draw(pools, budget)


def pooled_draw(pools: Pools, budget: int) -> dict[str, int]:
    """Quotas of one draw from all candidates together (paper 3.1, pooled-uniform).

    Of tokens the quotas are those of the examples that fit the budget, and the rest of the budget goes to the source
    of the first that doesn't.
    """
    if pools.tokens is None:
        return pooled_quotas({label: pools.keys(label) for label in pools.queues}, budget)
    quotas, left = dict.fromkeys(pools.queues, 0), budget
    for _, label, one in heapq.merge(*(_keyed(pools, label) for label in pools.queues)):
        taken = min(pools.tokens[label][one], left)
        quotas[label] += taken
        left -= taken
    return quotas


def _keyed(pools: Pools, label: str) -> Iterator[tuple[bytes, str, str]]:
    return ((key, label, one) for key, one in zip(pools.keys(label), pools.queues[label], strict=True))

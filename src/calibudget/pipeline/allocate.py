"""Floors, caps and groups as a round of its own has them: what is left of them after the rounds before it.

What an allocation is made from: gathered from a recipe, or from files and sizes.

From inputs to one plan, or to every policy's plan side by side.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibudget.allocation import (
    POLICIES,
    Amount,
    Group,
    Signal,
    least_units,
    most_units,
    parse_amount,
    parse_groups,
    plan,
    policy_named,
    pooled_quotas,
    products,
    resolve_groups,
)
from calibudget.errors import AllocationError, InputError, UnfedPolicyError
from calibudget.messages import counted
from calibudget.pipeline.pools import Pools, listed_pools
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Exponents, Statistics, Unit
from calibudget.store import read_splits, read_statistics, statistics_sha256


def bounds_of(recipe: Recipe, pools: Pools) -> dict[str, Any]:
    """`floor`, `floors`, `caps` and `groups` for the allocator.

    In a first round they are the recipe's. Later they are what is left of the recipe's once the units spent are
    taken off; a percentage is then one of all rounds' budgets together, or of the whole pool.
    """
    groups = recipe.plain_groups
    if not pools.spent:
        return {
            "floor": recipe.default_floor,
            "floors": recipe.own_floors,
            "caps": recipe.caps,
            "groups": groups,
        }
    spent = pools.spent
    budget = recipe.budget_total + sum(spent.values())
    whole = {label: size + spent[label] for label, size in pools.sizes.items()}
    floors = {label: (recipe.own_floors or {}).get(label, recipe.default_floor) for label in whole}
    return {
        "floors": {
            label: max(0, least_units(_read(floor), budget=budget, pool=whole[label]) - spent[label])
            for label, floor in floors.items()
        },
        "caps": {
            label: max(0, most_units(_read(cap), budget=budget, pool=whole[label]) - spent[label])
            for label, cap in (recipe.caps or {}).items()
        }
        or None,
        "groups": None
        if groups is None
        else {
            name: _less_spent(group, spent)
            for name, group in resolve_groups(parse_groups(groups, sorted(whole)), budget=budget, pools=whole).items()
        },
    }


def _read(value: int | str) -> Amount:
    return parse_amount(value, "the bound")


def _less_spent(group: Group, spent: Mapping[str, int]) -> Group:
    """A group in whole units, without what its members have spent."""
    used = sum(spent[label] for label in group.labels())
    floor, cap = group.floor, group.cap
    return replace(
        group,
        groups={name: _less_spent(inner, spent) for name, inner in group.groups.items()},
        floor=max(0, floor - used) if isinstance(floor, int) else floor,
        cap=max(0, cap - used) if isinstance(cap, int) else cap,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInputs:
    """Everything that any policy may ask for; what isn't there is None.

    `pools` are the candidates themselves, where they are known. The pooled draw is then made from them, and of a token
    budget those that are longer than their source's quota leave, so that `pool_sizes` counts the others.
    """

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
    pools: Pools | None = None


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
        pooled=pooled_if_asked(recipe.policy, pools, recipe.budget_total),
        signal=recipe.signal,
        exponents=recipe.utility_exponents,
        need_transform=recipe.need_transform,
        unit=recipe.unit,
        **bounds_of(recipe, pools),
    )


def fields_of(inputs: AllocationInputs) -> dict[str, Any]:
    """The inputs by name, as `allocation.plan` takes them."""
    return {name: getattr(inputs, name) for name in AllocationInputs.__slots__ if name != "pools"}


def inputs_from_files(
    *,
    statistics: Path | None,
    sizes: Mapping[str, int] | None,
    splits: Path | None,
    unit: str = "examples",
    max_repeats: int = 1,
    **fields: object,
) -> AllocationInputs:
    """Inputs whose pool sizes and signals come from files or from sizes; the other fields are given.

    Args:
        statistics: a `statistics.json`, or None. Its pool sizes count examples.
        sizes: pool sizes in the unit, where no file tells them.
        splits: a `splits.parquet`, whose candidates become `pools`; its token counts tell the sizes in tokens.
        unit: what budget, floors, caps and sizes count: "examples" or "tokens".
        max_repeats: how often each candidate may be drawn; it multiplies the pools.
        fields: the other fields of `AllocationInputs`.

    Raises:
        InputError: an unknown unit, pool sizes that nothing tells or that two things tell, or splits of other pools.
        ArtefactError: a file isn't what it should be.
    """
    if unit == "examples":
        asked, told = (statistics is None) != (not sizes), "give a STATISTICS file or --sizes label=n, one of the two"
    elif unit == "tokens":
        asked = (splits is None) != (not sizes)
        told = (
            "with --unit tokens give --sizes label=tokens or --splits FILE, one of the two; statistics count examples"
        )
    else:
        asked, told = False, f"the unit {unit!r} is unknown; a budget counts examples or tokens"
    if not asked:
        raise InputError(told)
    read = None if statistics is None else read_statistics(statistics)
    pools = None if splits is None else listed_pools(read_splits(splits), unit, max_repeats, str(splits))
    known = sizes if sizes or read is None else {label: row.pool_size for label, row in read.sources.items()}
    pool_sizes = {label: size * max_repeats for label, size in (known or {}).items()}
    if pools is not None and unit == "tokens":
        pool_sizes = pools.sizes
    elif pools is not None and pools.sizes != pool_sizes:
        differ = min(pools.sizes.items() ^ pool_sizes.items())[0]
        raise InputError(
            f"{splits}: has other pools than the rest ({differ!r}: {pools.sizes.get(differ)} there, "
            f"{pool_sizes.get(differ)} here)"
        )
    return AllocationInputs(
        pool_sizes=pool_sizes,
        statistics=read,
        statistics_sha256=None if read is None else statistics_sha256(read),
        unit="tokens" if unit == "tokens" else "examples",
        pools=pools,
        **fields,  # type: ignore[arg-type]
    )


def pooled_if_asked(policy: str, pools: Pools, budget: int) -> dict[str, int] | None:
    """The pooled draw where the policy is the one that wants it."""
    return pooled_draw(pools, budget) if policy_named(policy).wants == "pooled" else None


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


def plan_recipe(
    recipe: Recipe,
    pools: Pools,
    statistics: Statistics | None,
    *,
    intervals: bool = True,
) -> AllocationPlan:
    """The plan of a recipe's own policy.

    Raises:
        AllocationError: the budget can't be met; under a token budget what left for its length is told.
    """
    return _plan_from(
        recipe.policy, pools, lambda fitting: inputs_of_recipe(recipe, fitting, statistics), intervals=intervals
    )


def plan_allocation(policy: str, inputs: AllocationInputs, *, intervals: bool = True) -> AllocationPlan:
    """The plan of one policy.

    Raises:
        AllocationError: the budget can't be met, or the policy lacks its input.
    """
    if inputs.pools is None:
        return plan(policy, **fields_of(inputs), intervals=intervals)

    def inputs_from(fitting: Pools) -> AllocationInputs:
        pooled = pooled_if_asked(policy, fitting, inputs.budget)
        return replace(inputs, pool_sizes=fitting.sizes, pooled=pooled)

    return _plan_from(policy, inputs.pools, inputs_from, intervals=intervals)


def _plan_from(
    policy: str, pools: Pools, inputs_from: Callable[[Pools], AllocationInputs], *, intervals: bool = True
) -> AllocationPlan:
    """The plan of a policy over pools.

    Under a token budget the candidates that are longer than their source's quota leave the pools, and the policy is
    asked again, until none is left: the pools only shrink, so this ends.
    """
    limits: dict[str, int] = {}
    while True:
        fitting = pools.within(limits)
        inputs = inputs_from(fitting)
        pools.require_room(inputs.budget)
        try:
            made = plan(policy, **fields_of(inputs), intervals=intervals)
        except AllocationError as error:
            if not limits:
                raise
            left = ", ".join(
                f"{label}: longer than {counted(limit, 'token')}" for label, limit in sorted(limits.items())
            )
            raise AllocationError(
                f"examples longer than their source's quota had left ({left}); a larger budget, or fewer sources, lets "
                f"longer ones fit. Of the others: {error}"
            ) from error
        tight = {label: quota for label, quota in made.quotas.items() if fitting.longest(label) > quota}
        if not tight:
            return made
        limits |= tight


def feasible_floors(recipe: Recipe, pools: Pools) -> dict[str, int]:
    """The floor quotas; budgets, floors and caps that can't be met are refused before anything costly begins.

    Nothing is scored yet, so a policy that needs scores is stood in for by one that has the same bounds; and so is one
    that spends the floors alone, since the rest of its budget must find room in the next round.
    """
    pools.require_room(recipe.budget_total)
    rule = policy_named(recipe.policy)
    policy = "floor-sqrt" if rule.needs_scores or rule.floor_use == "only" else recipe.policy
    made = plan(policy, **fields_of(inputs_of_recipe(recipe, pools, None)), intervals=False)
    if "availability" in rule.factors:
        values = [row.availability or 0.0 for row in made.sources.values()]
        products(list(made.sources), [values], {"exponents.availability": recipe.exponents.availability})
    return {label: row.floor_quota for label, row in made.sources.items()}


def compare_policies(inputs: AllocationInputs) -> dict[str, AllocationPlan]:
    """The plans of all policies that spend the budget and that these inputs can feed, in the order of `POLICIES`."""
    plans = {}
    for policy, rule in POLICIES.items():
        if rule.floor_use != "only" and can_feed(inputs, policy):
            plans[policy] = plan_allocation(policy, inputs, intervals=False)
    return plans


def can_feed(inputs: AllocationInputs, policy: str) -> bool:
    """Whether the inputs hold what a policy needs, and no constraint that it doesn't know."""
    try:
        plan_allocation(policy, inputs, intervals=False)
    except UnfedPolicyError:
        return False
    return True

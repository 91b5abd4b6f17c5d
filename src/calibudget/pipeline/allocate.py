"""From a recipe, or from files and sizes, to a request and its plan; or to every policy's plan side by side."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibudget.allocation.bounds import Group, least_units, most_units, parse_groups, resolve_groups
from calibudget.allocation.plan import AllocationRequest, plan, pose_case
from calibudget.allocation.policies import POLICIES, policy_named, pooled_quotas, refuse_removed
from calibudget.allocation.utility_factors import products
from calibudget.errors import AllocationError, ArtefactError, InputError, UnfedPolicyError
from calibudget.messages import counted
from calibudget.pipeline.pools import Pools, make_pools, pools_of
from calibudget.pipeline.round_ledger import ROUNDS
from calibudget.records import AllocationPlan, Statistics, Unit
from calibudget.store.artefacts import ALLOCATION, STATISTICS, statistics_sha256

if TYPE_CHECKING:
    from calibudget.recipe.schema import Recipe


def request_of(recipe: Recipe, pools: Pools, statistics: Statistics | None) -> AllocationRequest:
    """What a recipe asks for, over these pools.

    In a later round floors, caps and groups are what is left of the recipe's once the units spent are taken off: a
    source that has its floor already needs no more of it. A percentage is then one of all rounds' budgets together, or
    of the whole pool.
    """
    request = AllocationRequest(
        policy=recipe.policy,
        pool_sizes=pools.sizes,
        budget=recipe.budget_total,
        floor=recipe.default_floor,
        floors=recipe.own_floors,
        caps=recipe.caps,
        groups=recipe.groups,
        statistics=statistics,
        statistics_sha256=None if statistics is None else statistics_sha256(statistics),
        weights=recipe.weights,
        pooled=pooled_draw(pools, recipe.budget_total) if policy_named(recipe.policy).wants == "pooled" else None,
        signal=recipe.signal,
        exponents=recipe.exponents,
        need_transform=recipe.need_transform,
        unit=recipe.unit,
    )
    return request if not pools.spent else _less_spent(recipe, request, pools.spent)


def _less_spent(recipe: Recipe, request: AllocationRequest, spent: Mapping[str, int]) -> AllocationRequest:
    budget = request.budget + sum(spent.values())
    whole = {label: size + spent[label] for label, size in request.pool_sizes.items()}
    floors = {label: (recipe.own_floors or {}).get(label, recipe.default_floor) for label in whole}
    groups = None if request.groups is None else parse_groups(request.groups, sorted(whole))
    return replace(
        request,
        floor=0,
        floors={
            label: max(0, least_units(floor, budget=budget, pool=whole[label]) - spent[label])
            for label, floor in floors.items()
        },
        caps={
            label: max(0, most_units(cap, budget=budget, pool=whole[label]) - spent[label])
            for label, cap in (recipe.caps or {}).items()
        }
        or None,
        groups=None
        if groups is None
        else {
            name: _group_less_spent(group, spent)
            for name, group in resolve_groups(groups, budget=budget, pools=whole).items()
        },
    )


def _group_less_spent(group: Group, spent: Mapping[str, int]) -> Group:
    """A group in whole units, without what its members have spent."""
    used = sum(spent[label] for label in group.labels())
    floor, cap = group.floor, group.cap
    return replace(
        group,
        groups={name: _group_less_spent(inner, spent) for name, inner in group.groups.items()},
        floor=max(0, floor - used) if isinstance(floor, int) else floor,
        cap=max(0, cap - used) if isinstance(cap, int) else cap,
    )


def request_from_files(
    policy: str,
    *,
    statistics: Path | None,
    sizes: Mapping[str, int] | None,
    splits: Path | None,
    unit: Unit = "examples",
    max_repeats: int = 1,
    **fields: Any,
) -> tuple[AllocationRequest, Pools | None]:
    """A request whose pool sizes and signals come from files or from sizes, and the candidates where they are known.

    Sizes are in the unit; a statistics file's count examples, and the token counts of a `splits.parquet` tell those in
    tokens. `fields` are the other fields of `AllocationRequest`.

    Raises:
        InputError: pool sizes that nothing tells or that two things tell, or splits of other pools.
        ArtefactError: a file isn't what it should be.
    """
    if unit == "examples" and (statistics is None) == (not sizes):
        raise InputError("give a STATISTICS file or --sizes label=n, one of the two")
    if unit == "tokens" and (splits is None) == (not sizes):
        raise InputError(
            "with --unit tokens give --sizes label=tokens or --splits FILE, one of the two; statistics count examples"
        )
    if statistics is not None and statistics.is_dir():
        if not (statistics / STATISTICS.name).exists():
            raise InputError(
                f"{statistics}: has no {STATISTICS.name}, as of a run without calibration; name no directory but "
                "--sizes label=n, with a --policy that needs no statistics"
            )
        statistics = statistics / STATISTICS.name
    elif statistics is not None and statistics.suffix in (".parquet", ".jsonl"):
        raise InputError(
            f"{statistics}: scores become statistics first: `calibudget statistics {statistics.name} --pool-sizes "
            "label=n --output statistics.json`, then allocate those"
        )
    read = None if statistics is None else STATISTICS.read(statistics)
    pools = None
    if splits is not None:
        from calibudget.store.splits import read_splits

        listed = read_splits(splits)
        if unit == "tokens" and not any(ids.tokens for ids in listed.sources.values()):
            raise ArtefactError(f"{splits}: counts no tokens; the file of a run with a budget of tokens does")
        pools = make_pools(listed.sources, unit, listed.selection_seed, max_repeats)
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
    return AllocationRequest(
        policy=policy,
        pool_sizes=pool_sizes,
        statistics=read,
        statistics_sha256=None if read is None else statistics_sha256(read),
        unit=unit,
        **fields,
    ), pools


def request_of_run(directory: Path) -> tuple[AllocationRequest, Pools]:
    """What a run directory's recipe asks for, over the candidates and the statistics that lie there."""
    from calibudget.pipeline.run_directory import recipe_of_run
    from calibudget.store.splits import SPLITS_NAME, read_splits

    recipe = recipe_of_run(directory)
    ledger = ROUNDS.read(directory / ROUNDS.name) if recipe.rounds is not None else None
    pools = pools_of(recipe, read_splits(directory / SPLITS_NAME).sources, ledger)
    return request_of(recipe, pools, STATISTICS.of(directory)), pools


def read_plan(path: Path) -> AllocationPlan:
    """The plan of an `allocation.json`.

    Raises:
        AllocationError: its policy was removed.
    """
    stored = ALLOCATION.read(path)
    refuse_removed(stored.policy)
    return stored


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
    recipe: Recipe, pools: Pools, statistics: Statistics | None, *, intervals: bool = True
) -> AllocationPlan:
    """The plan of a recipe's own policy.

    Raises:
        AllocationError: the budget can't be met; under a token budget what left for its length is told.
    """
    return _plan_within(pools, lambda fitting: request_of(recipe, fitting, statistics), intervals=intervals)


def plan_allocation(request: AllocationRequest, pools: Pools | None, *, intervals: bool = True) -> AllocationPlan:
    """The plan of a request, over its candidates where they are known.

    The pooled draw is then made from them, and of a token budget those that are longer than their source's quota leave.

    Raises:
        AllocationError: the budget can't be met, or the policy lacks its input.
    """
    if pools is None:
        return plan(request, intervals=intervals)
    wants_draw = policy_named(request.policy).wants == "pooled"

    def request_within(fitting: Pools) -> AllocationRequest:
        pooled = pooled_draw(fitting, request.budget) if wants_draw else None
        return replace(request, pool_sizes=fitting.sizes, pooled=pooled)

    return _plan_within(pools, request_within, intervals=intervals)


def _plan_within(
    pools: Pools, request_within: Callable[[Pools], AllocationRequest], *, intervals: bool
) -> AllocationPlan:
    """The plan of a request over pools.

    Under a token budget the candidates that are longer than their source's quota leave the pools, and the policy is
    asked again, until none is left: the pools only shrink, so this ends.
    """
    limits: dict[str, int] = {}
    while True:
        fitting = pools.within(limits)
        request = request_within(fitting)
        pools.require_room(request.budget)
        try:
            made = plan(request, intervals=intervals)
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

    Nothing is scored yet, so a policy that needs scores is stood in for by one that has the same bounds.
    """
    pools.require_room(recipe.budget_total)
    rule = policy_named(recipe.policy)
    request = request_of(recipe, pools, None)
    if rule.needs_scores:
        request = replace(request, policy="floor-sqrt")
    case = pose_case(request)
    worth = case.rule.rule(case.evidence)
    case.problem.solve(worth.utilities)  # refuses groups that can't be kept
    if "availability" in rule.factors:
        powers = {"exponents.availability": recipe.exponents.availability}
        products(case.problem.labels, [worth.factors["availability"]], powers)
    return dict(zip(case.problem.labels, case.problem.floor_quotas, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several policies' plans of one request.

    Attributes:
        plans: by policy, in the order of `POLICIES`, without intervals.
        left_out: why the others have none, by policy.
    """

    plans: Mapping[str, AllocationPlan]
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """The `--json` output of `calibudget allocate --compare`."""
        first = next(iter(self.plans.values()))
        return {
            "schema": "calibudget.comparison/1",
            "unit": first.unit,
            "budget": first.budget,
            "pool_sizes": {label: row.pool_size for label, row in first.sources.items()},
            "quotas": {policy: plan.quotas for policy, plan in self.plans.items()},
            "left_out": dict(self.left_out),
        }


def compare_policies(request: AllocationRequest, pools: Pools | None) -> Comparison:
    """The plans of all policies that the request can feed."""
    plans, left_out = {}, {}
    for policy in POLICIES:
        try:
            plans[policy] = plan_allocation(replace(request, policy=policy), pools, intervals=False)
        except UnfedPolicyError as error:
            left_out[policy] = str(error)
    return Comparison(plans=plans, left_out=left_out)

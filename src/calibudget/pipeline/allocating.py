"""From inputs to one plan, or to every policy's plan side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from calibudget.allocation import POLICIES, plan, policy_named, products
from calibudget.errors import AllocationError, UnfedPolicyError
from calibudget.pipeline.bounds import check_exposures
from calibudget.pipeline.inputs import AllocationInputs, fields_of, inputs_of_recipe, pooled_if_asked
from calibudget.pipeline.pools import Pools
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Curve, Statistics
from calibudget.wording import counted


def plan_recipe(
    recipe: Recipe,
    pools: Pools,
    statistics: Statistics | None,
    curves: Mapping[str, Curve] | None = None,
    *,
    intervals: bool = True,
) -> AllocationPlan:
    """The plan of a recipe's own policy.

    Raises:
        AllocationError: the budget can't be met; under a token budget what left for its length is told.
    """
    return _plan_from(
        recipe.policy, pools, lambda fitting: inputs_of_recipe(recipe, fitting, statistics, curves), intervals=intervals
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
    check_exposures(recipe, pools)
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

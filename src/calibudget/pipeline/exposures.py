"""On how much of each source its warm-ups train, and the plans that draw just that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from calibudget.allocation import perturbed_mixtures
from calibudget.errors import RecipeError
from calibudget.pipeline.allocate import AllocationInputs, check_exposures, feasible_floors, plan_allocation
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.selectors import RecipeSelector
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan
from calibudget.store import digest_selection


def exposures_of(recipe: Recipe, pools: Pools) -> dict[str, tuple[int, ...]]:
    """Units of each source that its warm-ups train on, ascending.

    Those that the recipe gives; without them half the source's floor, rounded up, and the floor.

    Raises:
        RecipeError: no warm-ups, or a floor that can't be halved.
        AllocationError: pools, caps or a budget without room for them.
    """
    if recipe.warm_up is None:
        raise RecipeError("the recipe has no `warm_up`; give it one, and a policy that reads learning curves")
    given = recipe.warm_up.exposures
    if given is not None:
        check_exposures(recipe, pools)
        return dict.fromkeys(pools.sizes, given)
    floors = feasible_floors(recipe, pools)
    for label, floor in floors.items():
        if floor < 2:
            raise RecipeError(
                f"warm_up: trains on half of each floor and on the floor, but that of {label!r} is {floor}; raise it, "
                "or give `exposures`"
            )
    return {label: (-(-floor // 2), floor) for label, floor in floors.items()}


def exposure_shares(recipe: Recipe, exposures: Mapping[str, tuple[int, ...]]) -> list[Fraction]:
    """What part of all that the largest warm-up trains on each warm-up does, ascending to 1.

    Raises:
        RecipeError: exposures in tokens that are to be read off checkpoints, which tell examples only.
    """
    if recipe.reads_checkpoints and recipe.unit == "tokens":
        raise RecipeError("warm_up.read: checkpoints tell how many examples were seen, not how many tokens; say `runs`")
    totals = [sum(own) for own in zip(*exposures.values(), strict=True)]
    return [Fraction(total, totals[-1]) for total in totals]


def warm_up_quotas(recipe: Recipe, exposures: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Units of each source that each warm-up trains on: all at one exposure after another, or perturbed mixtures.

    Args:
        recipe: its `warm_up` says how curves are read.
        exposures: of `exposures_of`.
    """
    if recipe.reads_mixtures:
        return perturbed_mixtures(exposures)
    return [dict(zip(exposures, own, strict=True)) for own in zip(*exposures.values(), strict=True)]


def warm_up_plan(recipe: Recipe, pools: Pools, quotas: Mapping[str, int]) -> AllocationPlan:
    """The allocation that draws what one warm-up trains on.

    Args:
        recipe: its unit is used.
        pools: the candidates.
        quotas: one of `warm_up_quotas`.
    """
    inputs = AllocationInputs(
        pool_sizes=pools.sizes, budget=sum(quotas.values()), floors=quotas, unit=recipe.unit, pools=pools
    )
    return plan_allocation("floor", inputs, intervals=False)


def known_draws(recipe: Recipe, count: int, quotas: Sequence[Mapping[str, int]]) -> list[tuple[int, Mapping[str, int]]]:
    """The warm-ups whose examples follow from the recipe: their places, from 0, and their units of each source.

    Args:
        recipe: of checkpoints, which lie on the way of one training, only the last's do.
        count: how many warm-ups a file describes; 0 for one that doesn't say.
        quotas: of `warm_up_quotas`.
    """
    if recipe.reads_checkpoints:
        return [(count - 1, quotas[-1])] if count else []
    return list(enumerate(quotas))[:count]


def drawn_sha256(recipe: Recipe, pools: Pools, selector: RecipeSelector, quotas: Mapping[str, int]) -> str:
    """The digest of the examples that one warm-up trains on.

    Args:
        recipe: its unit is used.
        pools: the candidates.
        selector: which of them are drawn.
        quotas: one of `warm_up_quotas`.

    Raises:
        InputError: the selector has less to take from than a quota.
    """
    return digest_selection(pools.draw(warm_up_plan(recipe, pools, quotas), selector)).selected_sha256


def warm_up_recipe(recipe: Recipe) -> Recipe:
    """The recipe under which a warm-up's own run directory stands."""
    keeps_companion = recipe.warm_up is not None and recipe.warm_up.companion
    changes = {
        "policy": "floor",
        "floor": 0,
        "caps": None,
        "groups": None,
        "weights": None,
        "importance": None,
        "warm_up": None,
        "companion": recipe.companion if keeps_companion else None,
    }
    return recipe.model_copy(update=changes)

"""Floors, caps and groups as a round of its own has them: what is left of them after the rounds before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calibudget.allocation import Amount, Group, least_units, most_units, parse_amount, parse_groups, resolve_groups
from calibudget.errors import AllocationError
from calibudget.pipeline.pools import Pools
from calibudget.recipe import Recipe
from calibudget.wording import counted

_PART = "what warm-ups train on is part of the selection"


def bounds_of(recipe: Recipe, pools: Pools) -> dict[str, Any]:
    """`floor`, `floors`, `caps` and `groups` for the allocator.

    In a first round they are the recipe's. Later they are what is left of the recipe's once the units spent are
    taken off; a percentage is then one of all rounds' budgets together, or of the whole pool.
    """
    groups = recipe.plain_groups
    if not pools.spent:
        return {
            "floor": recipe.default_floor,
            "floors": _with_exposures(recipe, pools),
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


def check_exposures(recipe: Recipe, pools: Pools) -> None:
    """Refuse warm-ups whose given exposures pools, caps or budget have no room for.

    Raises:
        AllocationError: the field, what it comes to, and what it is too much for.
    """
    if recipe.warm_up is None or recipe.warm_up.exposures is None:
        return
    largest, budget = recipe.warm_up.exposures[-1], recipe.budget_total
    for label, size in pools.sizes.items():
        if size < largest:
            raise AllocationError(
                f"the pool of {label!r} holds {size:,} {recipe.unit}, fewer than the largest warm-up's {largest:,}: "
                "take smaller `warm_up.exposures`"
            )
        cap = (recipe.caps or {}).get(label)
        most = size if cap is None else most_units(_read(cap), budget=budget, pool=size)
        if most < largest:
            raise AllocationError(
                f"the cap of {label!r} is {most:,} {recipe.unit}, fewer than the largest warm-up's {largest:,}, and "
                f"{_PART}: take smaller `warm_up.exposures`, or raise the cap"
            )
    without = sum(min(size, _own_floor(recipe, label, size)) for label, size in pools.sizes.items())
    total = sum(min(size, max(largest, _own_floor(recipe, label, size))) for label, size in pools.sizes.items())
    if without <= budget < total:
        raise AllocationError(
            f"`warm_up.exposures` end at {largest:,} {recipe.unit} of each of {counted(len(pools.sizes), 'source')}, "
            f"and {_PART}; with the floors that comes to {total:,}, {total - budget:,} above the budget {budget:,}: "
            "take smaller exposures, or raise the budget"
        )


def _own_floor(recipe: Recipe, label: str, size: int) -> int:
    floor = (recipe.own_floors or {}).get(label, recipe.default_floor)
    return least_units(_read(floor), budget=recipe.budget_total, pool=size)


def _with_exposures(recipe: Recipe, pools: Pools) -> dict[str, int | str] | None:
    """The sources' own floors; what warm-ups train on is part of the selection, so their exposures are floors too."""
    own = recipe.own_floors
    if recipe.warm_up is None or recipe.warm_up.exposures is None:
        return own
    largest = recipe.warm_up.exposures[-1]
    return {label: max(largest, _own_floor(recipe, label, size)) for label, size in pools.sizes.items()}


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

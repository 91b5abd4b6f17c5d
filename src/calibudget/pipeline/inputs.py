"""What a run works on, made once and passed down: recipe, sources as read and parted, pools, selector."""

from __future__ import annotations

from dataclasses import dataclass

from calibudget.pipeline.allocate import feasible_floors
from calibudget.pipeline.pools import Pools, pools_of_run
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.selectors import Parts, RecipeSelector, joined, selector_parts
from calibudget.recipe.schema import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run whose sources are read."""

    recipe: Recipe
    prepared: Prepared
    pools: Pools
    parts: Parts

    @property
    def selector(self) -> RecipeSelector:
        """What takes a quota's examples out of a pool."""
        return joined(self.recipe, self.parts)


def run_of(recipe: Recipe, prepared: Prepared) -> tuple[Run, dict[str, int]]:
    """A run and its floor quotas.

    Raises:
        AllocationError: a budget, floors or caps that can't be met, or too few candidates that the selector takes.
    """
    pools = pools_of_run(recipe, prepared)
    with prepared.telling_empty():
        floors = feasible_floors(recipe, pools)
    run = Run(recipe=recipe, prepared=prepared, pools=pools, parts=selector_parts(recipe, prepared))
    if pools.tokens is None:  # a selector that leaves a source fewer than its floor is refused before anything costly
        for label, floor in floors.items():
            run.selector.take(label, pools.queues[label], floor)
    return run, floors

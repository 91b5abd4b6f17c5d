"""What a run works on, made once and passed down: recipe, sources as read and parted, pools, selector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from calibudget.pipeline.allocate import feasible_floors
from calibudget.pipeline.pools import Pools, pools_of
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.run_selector import Parts, RecipeSelector, joined, selector_parts
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Selection


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run whose sources are read; its pools and its selector are made when they are first asked for."""

    recipe: Recipe
    prepared: Prepared

    @cached_property
    def pools(self) -> Pools:
        """The candidates, in the budget's unit."""
        return pools_of(self.recipe, self.prepared.ids, self.prepared.ledger)

    @cached_property
    def parts(self) -> Parts:
        """The selectors that files and data give; see `selector_parts`."""
        return selector_parts(self.recipe, self.prepared)

    @property
    def selector(self) -> RecipeSelector:
        """What takes a quota's examples out of a pool."""
        return joined(self.recipe, self.parts)

    def floors(self) -> dict[str, int]:
        """The floor quotas.

        Raises:
            AllocationError: a budget, floors or caps that can't be met, or too few candidates that the selector takes.
        """
        with self.prepared.telling_empty():
            floors = feasible_floors(self.recipe, self.pools)
        selector = self.selector
        if self.pools.tokens is None:  # who leaves a source fewer than its floor is refused before anything costly
            for label, floor in floors.items():
                selector.take(label, self.pools.queues[label], floor)
        return floors

    def draw(self, plan: AllocationPlan) -> Selection:
        """The picks of a plan's quotas, with the companion set counted; see `Pools.draw`."""
        companion = self.prepared.companion
        count = 0 if companion is None else len(companion.records)
        return replace(self.pools.draw(plan, self.selector), companion_count=count)

"""What a person should know about a run that its quotas don't say, in words."""

from __future__ import annotations

from collections.abc import Iterator

from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Selection
from calibudget.selection import unmarked
from calibudget.store import Manifest
from calibudget.wording import counted


def run_notes(recipe: Recipe, plan: AllocationPlan, selection: Selection, manifest: Manifest) -> tuple[str, ...]:
    """Examples too long for their quota, repeated examples, and what a warm-up leaves of its budget."""
    return (*_too_long(manifest), *_repeats(recipe, selection), *_left(recipe, plan))


def _too_long(manifest: Manifest) -> Iterator[str]:
    for label, row in manifest.sources.items():
        if row.tokens is not None and row.tokens.too_long:
            left_out = counted(row.tokens.too_long, "candidate")
            yield f"{label}: {left_out} longer than its quota of {counted(row.quota, 'token')} left out"


def _repeats(recipe: Recipe, selection: Selection) -> Iterator[str]:
    for label, picks in selection.picks.items() if recipe.max_repeats > 1 else ():
        count = sum(unmarked(pick)[1] > 1 for pick in picks)
        if count:
            yield f"{label}: {counted(count, 'row')} of repeated examples"


def _left(recipe: Recipe, plan: AllocationPlan) -> Iterator[str]:
    left = recipe.budget_total - plan.budget
    if left:
        yield f"left for the next round: {left:,} of the budget of {recipe.budget_total:,}"

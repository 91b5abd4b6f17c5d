"""Which quotas would be others if scores had been rounded otherwise: a question for runs whose batches were split.

What a person should know about a run that its quotas don't say, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from calibudget.allocation import policy_named
from calibudget.messages import counted
from calibudget.pipeline.allocate import plan_recipe
from calibudget.pipeline.pools import Pools
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Selection, SourceStatistics, Statistics
from calibudget.selection import unmarked
from calibudget.store import Manifest

#: How far another split of the batches moved an NLL where it was measured, nats, by precision, and what is taken for
#: the means of others (docs/decisions: batches).
TOLERANCE: Final = {"float32": 1e-5}
COARSE: Final = 1e-2


def boundary_notes(
    recipe: Recipe, pools: Pools, statistics: Statistics | None, plan: AllocationPlan, provenance: Mapping[str, object]
) -> Iterator[str]:
    """Tell which sources' quotas sit on a rounding boundary, where batches were split for want of memory."""
    splits = provenance.get("batch_splits")
    if statistics is None or not isinstance(splits, int) or splits == 0:
        return
    tolerance = TOLERANCE.get(str(statistics.model.get("dtype")), COARSE)
    named = near_boundary(recipe, pools, statistics, plan, tolerance)
    told = f"{', '.join(named)} may get another quota elsewhere" if named else "no quota would be another one"
    if tolerance == COARSE:
        moves = f"which is taken to move mean NLLs by about {tolerance:g} in this precision"
    else:
        moves = f"which moved NLLs by about {tolerance:g} where it was measured"
    yield f"batches were halved {counted(splits, 'time')} for want of memory, {moves}: {told}"


def near_boundary(
    recipe: Recipe, pools: Pools, statistics: Statistics, plan: AllocationPlan, tolerance: float
) -> tuple[str, ...]:
    """The sources whose quotas change when every NLL may be off by `tolerance`, ascending.

    A unit passes from one source to another most easily when one of them needs as much more, and all others as much
    less, as the tolerance allows, or the other way round; so each source is raised and lowered against the rest and
    the plan made anew. To first order no other combination moves more.

    Args:
        recipe: its policy, budget and bounds.
        pools: the candidates.
        statistics: what the plan was made from.
        plan: the plan whose quotas are judged.
        tolerance: nats; means and bootstrap standard deviations move by no more than single NLLs do.
    """
    moved: set[str] = set()
    for label in statistics.sources:
        for change in (tolerance, -tolerance):
            sources = {
                other: _shifted(row, change if other == label else -change) for other, row in statistics.sources.items()
            }
            quotas = plan_recipe(recipe, pools, replace(statistics, sources=sources), intervals=False).quotas
            moved |= {other for other, quota in quotas.items() if quota != plan.quotas[other]}
    return tuple(sorted(moved))


def _shifted(row: SourceStatistics, change: float) -> SourceStatistics:
    """Statistics by which a source is worth a little more (or less): a greater mean, trusted a little more."""
    return replace(row, mean_error=max(row.mean_error + change, 0.0), bootstrap_sd=max(row.bootstrap_sd - change, 0.0))


def run_notes(recipe: Recipe, plan: AllocationPlan, selection: Selection, manifest: Manifest) -> tuple[str, ...]:
    """An unused floor, examples too long for their quota, repeated ones, and what a round of floors leaves."""
    return (*_no_floor(recipe), *_too_long(manifest), *_repeats(recipe, selection), *_left(recipe, plan))


def _no_floor(recipe: Recipe) -> Iterator[str]:
    if recipe.floor and policy_named(recipe.policy).floor_use == "none":
        floors = recipe.model_dump(mode="json")["floor"]
        yield f"the policy {recipe.policy!r} knows no floor: `floor: {floors}` isn't used, and counts as 0"


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

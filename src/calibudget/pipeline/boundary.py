"""Which quotas would be others if scores had been rounded otherwise: a question for runs whose batches were split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from calibudget.pipeline.allocating import plan_recipe
from calibudget.pipeline.pools import Pools
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, SourceStatistics, Statistics
from calibudget.wording import counted

#: How far another split of the batches moved an NLL where it was measured, nats, by precision, and what is taken for
#: the means of others (docs/decisions: batches).
_TOLERANCE: Final = {"float32": 1e-5}
_COARSE: Final = 1e-2


def boundary_notes(
    recipe: Recipe, pools: Pools, statistics: Statistics | None, plan: AllocationPlan, provenance: Mapping[str, object]
) -> Iterator[str]:
    """Tell which sources' quotas sit on a rounding boundary, where batches were split for want of memory."""
    splits = provenance.get("batch_splits")
    if statistics is None or not isinstance(splits, int) or splits == 0:
        return
    tolerance = _TOLERANCE.get(str(statistics.model.get("dtype")), _COARSE)
    named = near_boundary(recipe, pools, statistics, plan, tolerance)
    told = f"{', '.join(named)} may get another quota elsewhere" if named else "no quota would be another one"
    if tolerance == _COARSE:
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

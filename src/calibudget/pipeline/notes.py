"""What a person should know about a run that its quotas don't say, in words."""

from __future__ import annotations

from collections.abc import Iterator

from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Selection
from calibudget.selection import unmarked
from calibudget.store import CurveReport, Manifest
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


def curve_notes(report: CurveReport, manifest: Manifest) -> tuple[str, ...]:
    """What learning curves predict, where they can't be right, and what they cost."""
    return (predicted(report), *_below_zero(report, manifest), *_cost(manifest))


def _below_zero(report: CurveReport, manifest: Manifest) -> Iterator[str]:
    for label, one in report.sources.items():
        if one.predicted_nll is not None and one.predicted_nll < 0:
            yield (
                f"{label}: its curve predicts an NLL of {one.predicted_nll:.4f} at its quota of "
                f"{manifest.sources[label].quota:,}, and none is below 0: it ends before its curve does; give it a cap"
            )


def _cost(manifest: Manifest) -> Iterator[str]:
    cost = manifest.warm_ups
    if cost is not None:
        warm_ups, examples = counted(cost.count, "warm-up"), counted(cost.examples, "example")
        yield f"{warm_ups} trained on {examples} and took {cost.seconds:,.0f} s"


def predicted(report: CurveReport) -> str:
    """The predicted macro NLL in words."""
    if report.predicted_nll is None or report.prediction_interval is None:
        return "no macro NLL is predicted: a curve has no value at a quota of 0"
    low, high = report.prediction_interval
    kind = "macro NLL" if report.importance is None else "macro NLL, weighted by importance,"
    return f"predicted {kind} of the calibration split: {report.predicted_nll:.4f} (95% {low:.4f} to {high:.4f})"

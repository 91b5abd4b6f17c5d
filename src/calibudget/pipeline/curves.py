"""From warm-ups to curves, and from curves to slopes and predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calibudget.allocation import (
    CurveSet,
    MeasuredMixture,
    WarmUps,
    curve_intervals,
    fit_curves,
    macro_run_sd,
    macro_warm_ups,
    mean_of,
    prediction,
    transfers,
    weighted_mean,
)
from calibudget.errors import ArtefactError, RecipeError
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Statistics
from calibudget.store import (
    ALLOCATION_NAME,
    CURVES_NAME,
    SCORES_NAME,
    CurveReport,
    SourceCurve,
    WarmUpFile,
    curves_to_json,
    read_allocation,
    read_curves,
    read_scores,
    read_scores_file,
)


def measured(warm_ups: WarmUpFile, importance: Mapping[str, float] | None = None) -> dict[str, WarmUps]:
    """The warm-ups as curves are fitted to them, records in code-point order of their ids.

    Args:
        warm_ups: what was measured.
        importance: what a nat of each source is worth; only of mixtures it is part of the curves.

    Raises:
        ArtefactError: a source whose warm-ups measured different records.
        AllocationError: mixtures in which not just one source is changed.
    """
    if warm_ups.mixtures:
        return macro_warm_ups(mixtures_of(warm_ups), importance)
    return {
        label: WarmUps(exposures=list(warm_ups.exposures(label).values()), nll=list(_rows(warm_ups, label).values()))
        for label in warm_ups.labels
    }


def mixtures_of(warm_ups: WarmUpFile) -> list[MeasuredMixture]:
    """The mixtures that warm-ups trained on, with what they left.

    Raises:
        ArtefactError: a source whose warm-ups measured different records, or that some mixtures weren't measured on.
    """
    exposures = {label: warm_ups.exposures(label) for label in warm_ups.labels}
    rows = {label: _rows(warm_ups, label) for label in warm_ups.labels}
    numbers = sorted({number for own in exposures.values() for number in own})
    for label, own in exposures.items():
        if list(own) != numbers:
            raise ArtefactError(
                f"warm-ups: source {label!r}: wasn't measured after each of the {len(numbers)} mixtures"
            )
    return [
        MeasuredMixture(
            quotas={label: own[number] for label, own in exposures.items()},
            nll={label: own[number] for label, own in rows.items()},
        )
        for number in numbers
    ]


def _rows(warm_ups: WarmUpFile, label: str) -> dict[int, list[float]]:
    """A source's NLLs by warm-up, the same records in each."""
    by_number, exposures = warm_ups.of(label), warm_ups.exposures(label)
    ids = sorted({one for nlls in by_number.values() for one in nlls})
    for number, nlls in by_number.items():
        if len(nlls) != len(ids):
            missing = next(one for one in ids if one not in nlls)
            raise ArtefactError(
                f"warm-ups: source {label!r}: after {exposures[number]:,} units (warm-up {number}) the record "
                f"{missing!r} has no NLL, which it has after another warm-up; a curve needs the same records at each"
            )
    return {number: [nlls[one] for one in ids] for number, nlls in by_number.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A recipe's curves.

    Attributes:
        fits: the curves.
        exposures: units of each source that its warm-ups trained on, ascending.
        statistics: the calibration statistics, slopes included.
        transfer: of `allocation.transfers`; None unless warm-ups are mixtures.
    """

    fits: CurveSet
    exposures: Mapping[str, tuple[int, ...]]
    statistics: Statistics
    transfer: Mapping[str, Mapping[str, float]] | None = None


def curves_of(recipe: Recipe, warm_ups: WarmUpFile, statistics: Statistics) -> tuple[Curves, tuple[str, ...]]:
    """The curves of a recipe's warm-ups, and what there is to warn of.

    Args:
        recipe: its `warm_up` says how curves are fitted.
        warm_ups: what was measured.
        statistics: of the same calibration splits and the bare model.

    Raises:
        RecipeError: the recipe has no warm-ups.
        ArtefactError, AllocationError: warm-ups of another model, or that no curves, or no visible ones, go through.
    """
    if recipe.warm_up is None:
        raise RecipeError("the recipe has no `warm_up`")
    check_same_model(warm_ups.model, statistics.model, "the warm-ups are")
    points = measured(warm_ups, recipe.importance)
    run_sd = recipe.warm_up.run_sd
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = fit_curves(
            points,
            form=recipe.warm_up.form,
            shrink=recipe.warm_up.shrink,
            run_sd=macro_run_sd(run_sd, list(points), recipe.importance) if warm_ups.mixtures else run_sd,
            resamples=statistics.resamples,
            seed=statistics.bootstrap_seed,
        )
    found = Curves(
        fits=fits,
        exposures={label: tuple(one.exposures) for label, one in points.items()},
        statistics=with_slopes(statistics, fits.slopes),
        transfer=transfers(mixtures_of(warm_ups)) if warm_ups.mixtures else None,
    )
    return found, tuple(str(warning.message) for warning in caught)


def with_slopes(statistics: Statistics, slopes: Mapping[str, float]) -> Statistics:
    """Statistics with the slopes that warm-ups measured.

    Raises:
        ArtefactError: warm-ups of other sources.
    """
    if statistics.sources.keys() != slopes.keys():
        differ = min(statistics.sources.keys() ^ slopes.keys())
        raise ArtefactError(f"the warm-ups are of other sources than the scores ({differ!r} is in one of them only)")
    sources = {label: replace(row, slope=slopes[label]) for label, row in statistics.sources.items()}
    return replace(statistics, sources=sources)


def curve_report(recipe: Recipe, curves: Curves, plan: AllocationPlan) -> CurveReport:
    """What is kept of the curves, and what they predict of an allocation.

    Raises:
        RecipeError: the recipe has no warm-ups.
    """
    if recipe.warm_up is None:
        raise RecipeError("the recipe has no `warm_up`")
    fits = curves.fits
    lower = {label: row.floor_quota for label, row in plan.sources.items()}
    upper = {label: row.floor_quota + row.residual_capacity for label, row in plan.sources.items()}
    weights = recipe.curve_weights
    bands = curve_intervals(fits, plan.budget, lower=lower, upper=upper, weights=weights)
    expected = prediction(fits, plan.quotas, weights=weights)
    is_known = math.isfinite(expected.nll) and all(map(math.isfinite, expected.interval))
    nlls = {label: fits.curves[label].nll(quota) for label, quota in plan.quotas.items()}
    is_own = curves.transfer is None  # with transfer a source's curve isn't that of its own NLL
    return CurveReport(
        form=recipe.warm_up.form,
        shrink=recipe.warm_up.shrink,
        run_sd=recipe.warm_up.run_sd,
        resamples=curves.statistics.resamples,
        bootstrap_seed=curves.statistics.bootstrap_seed,
        prior=None if fits.prior is None else (fits.prior.mean, fits.prior.variance),
        importance=recipe.importance,
        sources={
            label: SourceCurve(
                exposures=curves.exposures[label],
                fit=fit,
                quota_interval=bands[label],
                predicted_nll=nlls[label] if is_own and math.isfinite(nlls[label]) else None,
            )
            for label, fit in fits.sources.items()
        },
        transfer=curves.transfer,
        predicted_nll=expected.nll if is_known else None,
        prediction_interval=expected.interval if is_known else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveView:
    """A run's curves beside what came out.

    Attributes:
        report: the curves and what they predicted.
        quotas: the quotas of the run.
        outcome: mean NLL of each source's calibration records after training; None where it wasn't given.
        outcome_nll: their (weighted) mean; None likewise.
    """

    report: CurveReport
    quotas: Mapping[str, int]
    outcome: Mapping[str, float] | None
    outcome_nll: float | None

    def to_json(self) -> dict[str, object]:
        """The `--json` output of `calibudget curves`."""
        return {
            "schema": "calibudget.curve-view/1",
            "curves": curves_to_json(self.report),
            "quotas": dict(self.quotas),
            "outcome": None if self.outcome is None else dict(self.outcome),
            "outcome_nll": self.outcome_nll,
        }


def show_curves(run_dir: str | Path, outcome: str | Path | None = None) -> CurveView:
    """The curves of a finished run, and the outcome beside them.

    Args:
        run_dir: the run directory.
        outcome: scores of its calibration records by the model that was trained on its train set.

    Raises:
        ArtefactError: no run with curves, or an outcome of other records or of another model.
    """
    directory = Path(run_dir)
    if not (directory / CURVES_NAME).is_file():
        raise ArtefactError(f"{directory}: holds no {CURVES_NAME}; only policies that read learning curves leave one")
    report, plan = read_curves(directory / CURVES_NAME), read_allocation(directory / ALLOCATION_NAME)
    if outcome is None:
        return CurveView(report=report, quotas=plan.quotas, outcome=None, outcome_nll=None)
    before, after = read_scores(directory / SCORES_NAME), read_scores_file(Path(outcome))
    ids = [{(score.source, score.record_id) for score in file.scores} for file in (before, after)]
    if ids[0] != ids[1]:
        raise ArtefactError(f"{outcome}: scores other records than the calibration split of {directory}")
    check_same_model(
        (after.provenance or {}).get("model"), (before.provenance or {}).get("model"), f"{outcome}: is an outcome"
    )
    nlls: dict[str, list[float]] = {}
    for score in after.scores:
        nlls.setdefault(score.source, []).append(score.nll)
    means = {label: mean_of(values, f"{outcome}: the NLLs of {label!r}") for label, values in nlls.items()}
    return CurveView(
        report=report, quotas=plan.quotas, outcome=means, outcome_nll=weighted_mean(means, report.importance)
    )


def check_same_model(own: object, scored: object, subject: str) -> None:
    """Refuse measurements of another model than the one that scored, where both say which it was.

    Args:
        own: what is said of the model that was measured.
        scored: what the scorer says of its own.
        subject: what errors begin with.
    """
    if not (isinstance(own, Mapping) and isinstance(scored, Mapping)):
        return
    key = "sha256" if own.get("sha256") and scored.get("sha256") else "name"
    if own.get(key) and scored.get(key) and own[key] != scored[key]:
        raise ArtefactError(
            f"{subject} of another model than the scores ({key} {own[key]!r} instead of {scored[key]!r}): curves "
            "don't carry over to another model"
        )

"""From warm-ups to curves, from curves to slopes and predictions, and warm-ups that were made elsewhere."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calibudget.allocation import CurveSet, WarmUps, curve_intervals, fit_curves, prediction, weighted_mean
from calibudget.errors import ArtefactError, RecipeError
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Split, Statistics
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
    read_warm_ups_file,
)
from calibudget.wording import counted


def measured(warm_ups: WarmUpFile) -> dict[str, WarmUps]:
    """The warm-ups as curves are fitted to them, records in code-point order of their ids.

    Raises:
        ArtefactError: a source whose exposures measured different records.
    """
    found = {}
    for label in warm_ups.labels:
        by_exposure = warm_ups.of(label)
        ids = sorted({one for nlls in by_exposure.values() for one in nlls})
        for exposure, nlls in by_exposure.items():
            if len(nlls) != len(ids):
                missing = next(one for one in ids if one not in nlls)
                raise ArtefactError(
                    f"warm-ups: source {label!r}: after {exposure:,} units the record {missing!r} has no NLL, which it "
                    "has after another exposure; a curve needs the same records at each"
                )
        nll = [[nlls[one] for one in ids] for nlls in by_exposure.values()]
        found[label] = WarmUps(exposures=list(by_exposure), nll=nll)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A recipe's curves.

    Attributes:
        fits: the curves.
        exposures: units of each source that its warm-ups trained on, ascending.
        statistics: the calibration statistics, slopes included.
    """

    fits: CurveSet
    exposures: Mapping[str, tuple[int, ...]]
    statistics: Statistics


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
    _check_same_model(warm_ups.model, statistics.model, "the warm-ups are")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = fit_curves(
            measured(warm_ups),
            form=recipe.warm_up.form,
            shrink=recipe.warm_up.shrink,
            run_sd=recipe.warm_up.run_sd,
            resamples=statistics.resamples,
            seed=statistics.bootstrap_seed,
        )
    exposures = {label: tuple(warm_ups.of(label)) for label in fits.sources}
    found = Curves(fits=fits, exposures=exposures, statistics=with_slopes(statistics, fits.slopes))
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
    bands = curve_intervals(fits, plan.budget, lower=lower, upper=upper, weights=recipe.importance)
    expected = prediction(fits, plan.quotas, weights=recipe.importance)
    is_known = math.isfinite(expected.nll) and all(map(math.isfinite, expected.interval))
    nlls = {label: fits.curves[label].nll(quota) for label, quota in plan.quotas.items()}
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
                predicted_nll=nlls[label] if math.isfinite(nlls[label]) else None,
            )
            for label, fit in fits.sources.items()
        },
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
    _check_same_model(
        (after.provenance or {}).get("model"), (before.provenance or {}).get("model"), f"{outcome}: is an outcome"
    )
    nlls: dict[str, list[float]] = {}
    for score in after.scores:
        nlls.setdefault(score.source, []).append(score.nll)
    means = {label: math.fsum(values) / len(values) for label, values in nlls.items()}
    return CurveView(
        report=report, quotas=plan.quotas, outcome=means, outcome_nll=weighted_mean(means, report.importance)
    )


def warm_ups_made_elsewhere(
    file: Path, recipe: Recipe, splits: Mapping[str, Split], exposures: Mapping[str, tuple[int, ...]]
) -> WarmUpFile:
    """Read warm-ups of exactly these calibration splits and exposures.

    Raises:
        ArtefactError: a file of other records, exposures or units.
    """
    found = read_warm_ups_file(file)
    if found.unit != recipe.unit:
        raise ArtefactError(f"{file}: exposures count {found.unit}, but the budget counts {recipe.unit}")
    if found.labels != sorted(splits):
        differ = min(set(found.labels) ^ set(splits))
        raise ArtefactError(f"{file}: is of other sources than the recipe ({differ!r} is in one of them only)")
    for label, split in splits.items():
        by_exposure = found.of(label)
        if not recipe.reads_checkpoints and tuple(by_exposure) != exposures[label]:
            raise ArtefactError(
                f"{file}: warmed {label!r} up on {list(by_exposure)} {found.unit}, but the recipe says "
                f"{list(exposures[label])}"
            )
        wanted = {record.record_id for record in split.calibration}
        for exposure, nlls in by_exposure.items():
            if nlls.keys() != wanted:
                stray = min(nlls.keys() ^ wanted)
                raise ArtefactError(
                    f"{file}: after {exposure:,} {found.unit} of {label!r} it measures other records than the "
                    f"{counted(len(wanted), 'calibration record')} of this recipe (the first that differs: {stray}); "
                    "was it made with this recipe, its seeds and its data?"
                )
    return found


def _check_same_model(own: object, scored: object, subject: str) -> None:
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

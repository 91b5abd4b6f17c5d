"""Do slopes, curves and predictions follow from the warm-ups, and are these of the run's own records and examples?"""

from __future__ import annotations

import math

from calibudget.messages import counted
from calibudget.pipeline.checks.findings import Findings, equal
from calibudget.pipeline.curves import Curves, curve_report, curves_of
from calibudget.pipeline.exposures import drawn_sha256, exposures_of, known_draws, warm_up_quotas
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.selectors import RecipeSelector
from calibudget.pipeline.training_options import training_difference
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Statistics
from calibudget.store import (
    CURVES_NAME,
    WARM_UPS_NAME,
    SplitIds,
    WarmUpFile,
    curves_to_json,
    read_curves,
    read_warm_ups,
)

# Predictions go through logarithms, which platforms may round otherwise.
_PLATFORM_TOLERANCE = 1e-9


def read_warmed(
    findings: Findings, recipe: Recipe, splits: SplitIds, pools: Pools, selector: RecipeSelector
) -> WarmUpFile | None:
    """The warm-ups, compared with the calibration records, and with what the recipe says that they train on."""
    warmed = findings.read(WARM_UPS_NAME, read_warm_ups)
    if warmed is None or not findings.compare(WARM_UPS_NAME, sorted(splits.sources), warmed.labels, field="source"):
        return None
    findings.compare(WARM_UPS_NAME, recipe.unit, warmed.unit, field="unit")
    findings.compare(WARM_UPS_NAME, recipe.reads_mixtures, warmed.mixtures, field="mixtures")
    for label, ids in splits.sources.items():
        exposures = warmed.exposures(label)
        for number, nlls in warmed.of(label).items():
            differ = sorted(nlls.keys() ^ set(ids.calibration))
            if differ:
                field, found = f"source {label}: after {exposures[number]}: {differ[0]}", counted(len(differ), "other")
                findings.add(WARM_UPS_NAME, field, "an NLL of every calibration record, and of no other", found)
    _check_trained(findings, recipe, pools, selector, warmed)
    findings.checked.append("warm-ups: one NLL for each calibration record and exposure, of the run's own examples")
    return warmed


def derive_curves(findings: Findings, recipe: Recipe, warmed: WarmUpFile, statistics: Statistics) -> Curves | None:
    """The curves as they follow from the warm-ups; None where there are none."""
    found = findings.derive(
        WARM_UPS_NAME, "warm-ups that curves go through", lambda: curves_of(recipe, warmed, statistics)
    )
    return None if found is None else found[0]


def check_report(findings: Findings, recipe: Recipe, curves: Curves, plan: AllocationPlan) -> None:
    """Compare `curves.json` with what curves and quotas give."""
    stored = findings.read(CURVES_NAME, read_curves)
    made = findings.derive(CURVES_NAME, "curves of this allocation", lambda: curve_report(recipe, curves, plan))
    if stored is not None and made is not None:
        findings.compare(CURVES_NAME, curves_to_json(made), curves_to_json(stored), same=_nearly_equal)
        findings.checked.append("curves: slopes, their intervals, and the predicted NLL, from the warm-ups")


def _check_trained(
    findings: Findings, recipe: Recipe, pools: Pools, selector: RecipeSelector, warmed: WarmUpFile
) -> None:
    """Compare exposures, drawn examples and training with the recipe's; checkpoints lie on the way to the last ones."""
    quotas = findings.derive(
        WARM_UPS_NAME,
        "pools that can be warmed up on",
        lambda: warm_up_quotas(recipe, exposures_of(recipe, pools)),
    )
    if quotas is None:
        return
    for label in warmed.labels:
        expected, found = [each[label] for each in quotas], list(warmed.exposures(label).values())
        if recipe.reads_checkpoints:
            expected, found = expected[-1:], found[-1:]
        findings.compare(WARM_UPS_NAME, expected, found, field=f"source {label}: exposures")
    for number, units in known_draws(recipe, len(warmed.runs), quotas):
        drawn = findings.derive(
            WARM_UPS_NAME,
            "pools that can be warmed up on",
            lambda units=units: drawn_sha256(recipe, pools, selector, units),  # type: ignore[misc]
        )
        if drawn is not None:
            found_sha256 = warmed.runs[number].selected_sha256
            findings.compare(WARM_UPS_NAME, drawn, found_sha256, field=f"runs[{number}].selected_sha256")
    for number, one in enumerate(warmed.runs):
        differs = findings.derive(
            WARM_UPS_NAME,
            "options that warm-ups can be trained with",
            lambda one=one: [training_difference(recipe, one)],  # type: ignore[misc]
        )
        for each in filter(None, differs or ()):
            findings.add(WARM_UPS_NAME, f"runs[{number}].training", f"{each.field} {each.expected!r}", repr(each.found))


def _nearly_equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=_PLATFORM_TOLERANCE)
    return equal(expected, found)

"""What was measured elsewhere and is given to a run: scores and warm-ups, checked before anything is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibudget.errors import ArtefactError, RecipeError
from calibudget.messages import counted
from calibudget.pipeline.exposures import drawn_sha256, exposures_of, known_draws, warm_up_quotas
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.score import scores_made_elsewhere
from calibudget.pipeline.selectors import RecipeSelector
from calibudget.pipeline.training_options import training_difference
from calibudget.recipe import Recipe
from calibudget.records import Split
from calibudget.store import ScoreFile, WarmUpFile, read_scores_file, read_warm_ups_file

_AGAIN = "give the recipe, seeds and data that they were made with, or make them again (`calibudget warm-up`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was measured elsewhere, as it was read; None where it is measured here, or not at all."""

    scores: tuple[Path, ScoreFile] | None = None
    warm_ups: tuple[Path, WarmUpFile] | None = None


def read_given(recipe: Recipe, scores: str | Path | None, warm_ups: str | Path | None) -> Given:
    """Read what was made elsewhere, before any source is read.

    Raises:
        RecipeError: warm-ups for a policy that reads none.
        ArtefactError: a file that can't be read, or isn't what it should be.
    """
    if recipe.warm_up is None and warm_ups is not None:
        raise RecipeError(f"policy {recipe.policy!r} reads no learning curves, so warm-ups have no place in it")
    return Given(
        scores=None if scores is None else (Path(scores), read_scores_file(Path(scores), error=recipe.error)),
        warm_ups=None
        if warm_ups is None
        else (Path(warm_ups), read_warm_ups_file(Path(warm_ups), mixtures=recipe.reads_mixtures)),
    )


def checked(
    recipe: Recipe, given: Given, splits: Mapping[str, Split], pools: Pools, selector: RecipeSelector
) -> tuple[ScoreFile | None, WarmUpFile | None]:
    """Scores and warm-ups made elsewhere, if they are of these splits, exposures, draws and training.

    Raises:
        ArtefactError: they aren't; what differs is named.
        AllocationError, RecipeError: pools or floors that can't be warmed up on.
    """
    made, warmed = None, None
    if given.scores is not None:
        file, scores = given.scores
        made = scores_made_elsewhere(scores, file, splits)
    quotas = [] if recipe.warm_up is None else warm_up_quotas(recipe, exposures_of(recipe, pools))
    if given.warm_ups is not None:
        file, warmed = given.warm_ups
        _check_kind(warmed, file, recipe, splits)
        _check_records(warmed, file, splits)
        _check_exposures(warmed, file, recipe, quotas)
        _check_draws(warmed, file, recipe, pools, selector, quotas)
        _check_training(warmed, file, recipe)
    return made, warmed


def _check_kind(found: WarmUpFile, file: Path, recipe: Recipe, splits: Mapping[str, Split]) -> None:
    if found.mixtures != recipe.reads_mixtures:
        kinds = ("mixtures that show transfer", "warm-ups of all sources together")
        own, other = kinds if found.mixtures else kinds[::-1]
        raise ArtefactError(f"{file}: holds {own}, but the recipe's `warm_up.read` asks for {other}")
    if found.unit != recipe.unit:
        raise ArtefactError(f"{file}: exposures count {found.unit}, but the budget counts {recipe.unit}")
    if found.labels != sorted(splits):
        differ = min(set(found.labels) ^ set(splits))
        raise ArtefactError(f"{file}: is of other sources than the recipe ({differ!r} is in one of them only)")


def _check_records(found: WarmUpFile, file: Path, splits: Mapping[str, Split]) -> None:
    for label, split in splits.items():
        exposures, wanted = found.exposures(label), {record.record_id for record in split.calibration}
        for number, nlls in found.of(label).items():
            if nlls.keys() != wanted:
                stray = min(nlls.keys() ^ wanted)
                raise ArtefactError(
                    f"{file}: after {exposures[number]:,} {found.unit} of {label!r} it measures other records than the "
                    f"{counted(len(wanted), 'calibration record')} of this recipe (the first that differs: {stray}); "
                    "was it made with this recipe, its seeds and its data?"
                )


def _check_exposures(found: WarmUpFile, file: Path, recipe: Recipe, quotas: Sequence[Mapping[str, int]]) -> None:
    """Of checkpoints only the last exposure follows from the recipe."""
    last = slice(-1 if recipe.reads_checkpoints else None, None)
    for label in found.labels:
        own, expected = list(found.exposures(label).values())[last], [each[label] for each in quotas][last]
        if own != expected:
            raise ArtefactError(
                f"{file}: warmed {label!r} up on {own} {found.unit}, but the recipe says {expected}; say them as "
                f"`warm_up.exposures`, or {_AGAIN}"
            )


def _check_draws(
    found: WarmUpFile,
    file: Path,
    recipe: Recipe,
    pools: Pools,
    selector: RecipeSelector,
    quotas: Sequence[Mapping[str, int]],
) -> None:
    for number, units in known_draws(recipe, len(found.runs), quotas):
        own, expected = found.runs[number].selected_sha256, drawn_sha256(recipe, pools, selector, units)
        if own != expected:
            raise ArtefactError(
                f"{file}: runs[{number}].selected_sha256: warm-up {number + 1} trained on other examples than the "
                f"{sum(units.values()):,} {recipe.unit} that this recipe draws (digest {own[:12]}... instead of "
                f"{expected[:12]}...), so its `selection_seed`, its `selector` or its candidates were others; {_AGAIN}"
            )


def _check_training(found: WarmUpFile, file: Path, recipe: Recipe) -> None:
    for number, one in enumerate(found.runs):
        differs = training_difference(recipe, one)
        if differs is not None:
            own, expected = json.dumps(differs.found), json.dumps(differs.expected)
            raise ArtefactError(
                f"{file}: runs[{number}].training: warm-up {number + 1} was trained with {differs.field} {own}, but "
                f"the recipe says {expected}, and curves don't carry over to another training; say "
                f"{differs.field}={own}, or make the warm-ups again (`calibudget warm-up`)"
            )

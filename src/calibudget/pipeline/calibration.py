"""What a recipe has scored, and by what scorer."""

from __future__ import annotations

from collections.abc import Iterable

from calibudget.errors import RecipeError
from calibudget.recipe.schema import Recipe
from calibudget.records import Split
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings
from calibudget.tasks.answers import AnswerSpec


def calibration_items(recipe: Recipe, splits: Iterable[Split]) -> list[CalibrationItem]:
    """The calibration records of all sources, each with how its answer is checked.

    Only the error rule `nll+wrong` asks for answers; under the others none is generated.
    """
    asks = recipe.error == "nll+wrong"
    return [
        CalibrationItem(record=record, answer=recipe.specs[split.source].answers if asks else AnswerSpec(kind="none"))
        for split in splits
        for record in split.calibration
    ]


def settings_of(recipe: Recipe) -> ScorerSettings:
    """The scorer that a recipe asks for, as plain values.

    Raises:
        RecipeError: the recipe says `calibration: none`.
    """
    calibration = recipe.calibration
    if calibration == "none":
        raise RecipeError("the recipe says `calibration: none`, so there is nothing to score")
    return ScorerSettings(
        kind=recipe.scorer,
        model=recipe.model or "",
        adapter=None if recipe.adapter is None else str(recipe.adapter),
        device=calibration.device,
        dtype=calibration.dtype,
        gpus=calibration.gpus,
        template=recipe.template,
        batch_tokens=calibration.batch_tokens,
        max_length=calibration.max_length,
        max_new_tokens=calibration.max_new_tokens,
        base_url=recipe.base_url,
        served_model=recipe.server.model,
        requests=recipe.server.requests,
        timeout=recipe.server.timeout,
    )

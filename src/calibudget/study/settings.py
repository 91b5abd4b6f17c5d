"""What one cell is made with: its recipe, its training options and its evaluations, put together from the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calibudget.errors import StudyError
from calibudget.pipeline.evaluate import Asking
from calibudget.pipeline.training_options import options_from
from calibudget.recipe import Recipe, resolved_fields
from calibudget.recipe.loading import read_document, recipe_from_fields, replaced
from calibudget.recipe.strict_yaml import Document
from calibudget.store import canonical_json, expanded, sha256_hex
from calibudget.study.protocol import Asked, Protocol
from calibudget.study.records import Cell

#: Fields of a recipe that a cell's place in the grid decides; a protocol sets them nowhere else.
_DECIDED = ("model", "budget", "seed", "split_seed", "bootstrap_seed", "selection_seed", "training_seed")
#: Fields of a recipe that calibration scores go by, beside the data.
_SCORED_BY = ("model", "template", "engine", "sources", "duplicates", "on_error", "calibration", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """Everything that decides a cell's outcome but the data, the code and the machine.

    Attributes:
        recipe: of selection, on the model that calibrates.
        model: name of the model that is trained and evaluated.
        train: whether it is; else quotas are all that the cell has.
        options: of training, by name.
        evaluation: what is asked of the trained model.
    """

    recipe: Recipe
    model: str
    train: bool
    options: Mapping[str, Any]
    evaluation: tuple[Asked, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, every default written out."""
        options = options_from(self.recipe, self.options)
        return {
            "recipe": resolved_fields(self.recipe),
            "model": self.model,
            "training": {**asdict(options.config), **asdict(options.execution)} if self.train else None,
            "evaluation": [one.model_dump(mode="json") for one in self.evaluation] if self.train else None,
        }


def settings_of(protocol: Protocol, cell: Cell, document: Document) -> CellSettings:
    """Put a cell's settings together: the protocol's, then the backbone's, the point's and the policy's own.

    Args:
        protocol: what is studied.
        cell: one of its cells.
        document: the protocol's recipe, see `base_recipe`.

    Raises:
        RecipeError: what comes out is no recipe.
        StudyError: a part of the protocol sets what the grid decides.
        TrainingError: a training option that is none.
    """
    point, policy = protocol.points[cell.point], protocol.policies[cell.policy]
    trained, calibrated = protocol.backbones[cell.backbone], protocol.backbones[cell.calibrated_on]
    own = calibrated.recipe | point.recipe | policy.recipe
    taken = [name for name in _DECIDED if name in own]
    if taken:
        raise StudyError(f"cell {cell.name}: `recipe.{taken[0]}` is decided by the grid and can't be set")
    decided = {
        "policy": cell.policy,
        "model": calibrated.model,
        "budget": {"tokens": cell.budget} if cell.unit == "tokens" else cell.budget,
        "floor": cell.floor,
        "seed": cell.seed,
        "split_seed": cell.split_seed,
        "bootstrap_seed": cell.split_seed,
        "selection_seed": cell.selection_seed,
        "training_seed": cell.seed,
    }
    fields = replaced(document.value, decided | own)
    recipe = recipe_from_fields(fields, document, base_dir=(protocol.base_dir / protocol.recipe).parent)
    options = protocol.training | trained.training | point.training | policy.training
    if "seed" in options:
        raise StudyError(f"cell {cell.name}: `training.seed` is decided by the grid and can't be set")
    return CellSettings(
        recipe=recipe,
        model=trained.model,
        train=point.train,
        options=options,
        evaluation=protocol.evaluation,
    )


def base_recipe(protocol: Protocol) -> Document:
    """The document of the recipe that all cells start from.

    Raises:
        RecipeError: it can't be read.
    """
    return read_document(protocol.base_dir / protocol.recipe)


def settings_sha256(settings: CellSettings) -> str:
    """Digest of what protocol and recipe say of a cell.

    Cells of one digest are one piece of work, whatever point or policy they are named by.
    """
    return sha256_hex(canonical_json(settings.to_json()))


def scored_by(recipe: Recipe, cell: Cell) -> list[Any]:
    """What calibration scores go by, beside data and code; cells of which it is the same share them."""
    fields = resolved_fields(recipe)
    return [{name: fields[name] for name in _SCORED_BY}, cell.split_seed]


def asking_of(protocol: Protocol, asked: Asked) -> Asking:
    """An evaluation as the pipeline takes it; relative folders start at the protocol."""
    directory = None if asked.data_dir is None else protocol.base_dir / expanded(asked.data_dir)
    return Asking(
        tasks=asked.tasks,
        data_dir=directory,
        limit=asked.limit,
        likelihood=asked.likelihood,
        panels=protocol.panels,
        strict=asked.strict,
        defer_code=asked.defer_code,
    )

"""How a run is trained, and how its warm-ups are: options as they are given, within a model's context, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast

from calibudget.errors import RecipeError, TrainingError
from calibudget.recipe import Recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.store import WarmUpRun
from calibudget.training import Execution, TrainingConfig, parse_options


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What is trained and how it is run.

    Attributes:
        config: the paper's unless told otherwise, with the recipe's training seed.
        execution: how it is run.
        given: names of the options that were told; the others are defaults.
    """

    config: TrainingConfig
    execution: Execution
    given: frozenset[str] = frozenset()


def training_options(recipe: Recipe, overrides: Sequence[str] = ()) -> TrainingOptions:
    """The options of a run's training.

    Args:
        recipe: the run's recipe; its training seed is the default.
        overrides: `key=value` texts, keys being fields of `TrainingConfig` or `Execution`, values YAML.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
    """
    given: dict[str, Any] = {}
    for override in overrides:
        name, value = parse_assignment(override, "option")
        given[name] = value
    return options_from(recipe, given)


def options_from(recipe: Recipe, fields_given: Mapping[str, object]) -> TrainingOptions:
    """`training_options` of options that are values already."""
    given = {"seed": recipe.training_seed, **fields_given}
    of_execution = {field.name for field in fields(Execution)}
    of_config = {key: value for key, value in given.items() if key not in of_execution}
    return TrainingOptions(
        config=parse_options(TrainingConfig, of_config, elsewhere=of_execution),
        execution=parse_options(Execution, {key: value for key, value in given.items() if key in of_execution}),
        given=frozenset(fields_given),
    )


def within_context(options: TrainingOptions, context: int | None, *, name: str = "max_length") -> TrainingConfig:
    """The configuration for a model's context: a `max_length` that wasn't told is the context where that is shorter.

    Args:
        options: what was told of the training.
        context: positions that the model has, None where it doesn't say.
        name: what errors call `max_length`.

    Raises:
        TrainingError: a `max_length` that was told is beyond the context.
    """
    config = options.config
    if context is None or config.max_length <= context:
        return config
    if "max_length" in options.given:
        raise TrainingError(
            f"{name}: {config.max_length} is more than the model's context of {context}; say {context} or less, or "
            "leave it out"
        )
    return replace(config, max_length=context)


def warm_up_options(recipe: Recipe) -> TrainingOptions:
    """How warm-ups are trained; for its checkpoints a training passes once over its examples, at a constant rate.

    Raises:
        TrainingError: options that can't be used.
        RecipeError: checkpoints of several epochs.
    """
    given: dict[str, object] = {} if recipe.warm_up is None else dict(recipe.warm_up.training)
    if recipe.reads_checkpoints:
        given = {"epochs": 1, "schedule": "constant"} | given
        if given["epochs"] != 1:
            raise RecipeError(
                f"warm_up.training: epochs: {given['epochs']!r}; checkpoints tell exposures apart only within one epoch"
            )
    return options_from(recipe, given)


def warm_up_training(recipe: Recipe, max_length: int | None = None) -> dict[str, object]:
    """How a recipe's warm-ups are trained, as `warm-ups.parquet` records it.

    Args:
        recipe: its `warm_up`, seed and template are used.
        max_length: what was used of it, where the model's context is shorter than the default; None leaves it.

    Raises:
        TrainingError, RecipeError: see `warm_up_options`.
    """
    config = warm_up_options(recipe).config
    with_companion = recipe.warm_up is not None and recipe.warm_up.companion and recipe.companion is not None
    return {
        **_plain(asdict(config)),
        "max_length": config.max_length if max_length is None else max_length,
        "template": recipe.template,
        "companion": with_companion,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDifference:
    """A field in which a warm-up was trained otherwise.

    Attributes:
        field: its name in the recipe.
        expected: what the recipe says.
        found: what the warm-up was trained with.
    """

    field: str
    expected: object
    found: object


def training_difference(recipe: Recipe, run: WarmUpRun) -> TrainingDifference | None:
    """The first field in which a warm-up was trained otherwise than the recipe says; None where none differs.

    Only what the warm-up tells is compared. A `max_length` below the default that the recipe doesn't give is the
    context of the model.

    Raises:
        TrainingError, RecipeError: see `warm_up_options`.
    """
    given = {} if recipe.warm_up is None else recipe.warm_up.training
    for name, expected in warm_up_training(recipe).items():
        found = run.training.get(name, expected)
        is_context = (
            name == "max_length" and name not in given and isinstance(found, int) and found <= cast(int, expected)
        )
        if found != expected and not is_context:
            field = {"template": "template", "companion": "warm_up.companion"}.get(name, f"warm_up.training.{name}")
            return TrainingDifference(field=field, expected=expected, found=found)
    return None


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

"""How a run is trained: options as they are told, within a model's context, and the libraries that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from calibudget.errors import DependencyError, TrainingError
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.training.config import Execution, TrainingConfig, parse_options


@contextmanager
def training_libraries(what: str) -> Iterator[None]:
    """Say of imports in the block that fail which line installs what they need."""
    try:
        yield
    except ImportError as error:
        raise DependencyError(f"{what} needs {error.name}; install: pip install 'calibudget[train]'") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What is trained and how it is run.

    Attributes:
        config: the paper's unless told otherwise, with the recipe's training seed.
        given: names of the options that were told; the others are defaults.
    """

    config: TrainingConfig
    execution: Execution
    given: frozenset[str] = frozenset()


def training_options(recipe: Recipe, overrides: Sequence[str] = ()) -> TrainingOptions:
    """The options of a run's training.

    Overrides are `key=value` texts, keys being fields of `TrainingConfig` or `Execution`, values YAML.

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


def within_context(options: TrainingOptions, context: int | None) -> TrainingConfig:
    """The configuration for a model's context: a `max_length` that wasn't told is the context where that is shorter.

    Raises:
        TrainingError: a `max_length` that was told is beyond the context.
    """
    config = options.config
    if context is None or config.max_length <= context:
        return config
    if "max_length" in options.given:
        raise TrainingError(
            f"max_length: {config.max_length} is more than the model's context of {context}; say {context} or less, or "
            "leave it out"
        )
    return replace(config, max_length=context)

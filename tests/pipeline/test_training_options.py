"""Training options within a model's context, told or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.training_options import training_options, within_context
from calibudget.recipe import load_recipe

RECIPE = """\
engine: fake
budget: 40
error: nll
sources:
  a: {path: a.jsonl, answer: none}
"""


@pytest.fixture
def recipe_of(tmp_path: Path) -> Any:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return lambda *overrides: load_recipe(tmp_path / "recipe.yaml", overrides)


@pytest.mark.parametrize(
    ("overrides", "context", "expected"),
    [
        ((), None, 1024),
        ((), 2048, 1024),
        ((), 256, 256),
        (("rank=2",), 256, 256),
        (("max_length=200",), 256, 200),
        (("max_length=2048",), 4096, 2048),
        (("max_length=2048",), None, 2048),
    ],
)
def test_a_length_that_isnt_told_is_the_context_where_that_is_shorter(
    recipe_of: Callable[..., Any], overrides: Any, context: int | None, expected: int
) -> None:
    options = training_options(recipe_of(), overrides)
    config = within_context(options, context)
    assert config.max_length == expected
    assert config.rank == options.config.rank

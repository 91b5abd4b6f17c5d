"""Faults that users of neighbouring systems reported, as they would meet them here: in a recipe and its run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe

RECIPE = {
    "budget": 20,
    "floor": 2,
    "policy": "equal",
    "calibration": "none",
    "sources": {"left": {"path": "left.jsonl", "answer": "none"}, "right": {"path": "right.jsonl", "answer": "none"}},
}


@pytest.fixture
def recipe_with(tmp_path: Path) -> Any:
    """Writes two sources of 40 rows, sorted by number, and a recipe with some fields changed; returns its path."""
    for name in ("left", "right"):
        rows = [{"prompt": f"{name} {number:03d}", "completion": f"answer {number}"} for number in range(40)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(**changes: Any) -> Any:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(RECIPE | changes))
        return path

    return write


@pytest.mark.parametrize("caps", [{"left": 9}, {"left": 9, "right": 31}, {"left": "25% of pool"}])
def test_caps_name_their_source(recipe_with: Callable[..., Any], tmp_path: Path, caps: Any) -> None:
    """hiyouga/LlamaFactory #6349: caps are read as written, or refused by name."""
    quotas = run(load_recipe(recipe_with(caps=caps)), tmp_path / "out").plan.quotas
    assert quotas == ({"left": 9, "right": 11} if caps["left"] == 9 else {"left": 10, "right": 10})


def test_a_pick_is_no_head(recipe_with: Callable[..., Any], tmp_path: Path) -> None:
    """allenai/open-instruct #1019: rows sorted by id, a tenth of them isn't the first tenth."""
    run(load_recipe(recipe_with(budget=8, floor=0)), tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out/train.jsonl").read_text().splitlines()]
    numbers = sorted(int(json.loads(row["original"])["prompt"].split()[1]) for row in rows if row["source"] == "left")
    assert len(numbers) == 4
    assert numbers != [0, 1, 2, 3]


def test_sources_of_one_file_name_and_split_are_all_used(recipe_with: Callable[..., Any], tmp_path: Path) -> None:
    """allenai/open-instruct PR #415: the second source of one split name is not dropped."""
    recipe = recipe_with(
        sources={
            "left": {"path": "a/train.jsonl", "answer": "none"},
            "right": {"path": "b/train.jsonl", "answer": "none"},
        }
    )
    for name, folder in (("left", "a"), ("right", "b")):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / f"{name}.jsonl", tmp_path / folder / "train.jsonl")
    assert run(load_recipe(recipe), tmp_path / "out").plan.quotas == {"left": 10, "right": 10}

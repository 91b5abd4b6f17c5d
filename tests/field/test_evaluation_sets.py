"""Prompts are enough for an evaluation set of the hygiene."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.errors import DataError
from calibudget.pipeline import run, verify
from calibudget.recipe import load_recipe

RECIPE = """
policy: equal
budget: 3
calibration: none
hygiene: {evaluation: {bench: {path: e.jsonl}}}
sources: {a: {path: a.jsonl}}
"""


def write(folder: Path, *rows: object) -> Path:
    (folder / "recipe.yaml").write_text(RECIPE)
    sources = [{"instruction": f"q{number}", "output": f"a{number}"} for number in range(5)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sources))
    (folder / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "recipe.yaml"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q1"},
        {"prompt": "q1", "completion": ""},
        {"question": "q1", "answer": None, "choices": ["x", "y"]},
        {"messages": [{"role": "user", "content": "q1"}]},
        {"messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a", "weight": 0}]},
        {"prompt": [{"role": "user", "content": "q1"}]},
        {"prompt": "q1", "completion": "other", "label": False, "reasoning": "r"},
    ],
)
def test_prompts_suffice(tmp_path: Path, row: object) -> None:
    recipe = load_recipe(write(tmp_path, row, {"question": "zzz"}))
    result = run(recipe, tmp_path / "out")
    prompts = {json.loads(line)["prompt"] for line in result.train_file.read_text().splitlines()}
    assert len(prompts) == 3
    assert "q1" not in prompts
    assert not verify(tmp_path / "out", data_dir=tmp_path).differences


def test_a_source_still_needs_its_responses(tmp_path: Path) -> None:
    recipe = write(tmp_path, {"question": "zzz"})
    (tmp_path / "a.jsonl").write_text('{"question": "q"}\n')
    with pytest.raises(DataError, match="no response"):
        run(load_recipe(recipe), tmp_path / "out")


def test_an_evaluation_set_needs_prompts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'bench': e\.jsonl:1: .*prompt"):
        run(load_recipe(write(tmp_path, {"answer": "x"})), tmp_path / "out")

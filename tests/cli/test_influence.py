"""`calibudget influence` from the command line, on to `proxy` and `run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.pipeline.prepare import prepare
from calibudget.recipe.load import load_recipe

RECIPE = """
model: {model}
budget: 12
floor: 2
error: nll
calibration: {{per_source: 4, resamples: 4, device: cpu}}
sources:
  apples: {{path: apples.jsonl, answer: none}}
  pears: {{path: pears.jsonl, answer: none}}
"""
WARM_UP = ["--warm-up", "epochs=1", "--warm-up", "rank=4", "--warm-up", "learning_rate=0.001"]


@pytest.fixture
def recipe(tmp_path: Path, tiny_directory: Path) -> Any:
    for name, count in (("apples", 14), ("pears", 18)):
        rows = [
            {"instruction": f"How many {name} are {n}?", "output": f"answer{n % 2 + 1} " * (n % 3 + 1)}
            for n in range(count)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(model=tiny_directory))
    return tmp_path / "recipe.yaml"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shard", "4"], "there are shards 0 to 3"),
        (["--dimension", "0"], "dimension must be 1 to"),
        (["--warm-up", "luck=1"], "luck"),
        (["--warm-up", "rank"], "--warm-up 'rank' isn't KEY=VALUE"),
        (["--warm-up-share", "2"], "above 0 and at most 1"),
        (["calibration=none", "policy=equal"], "measured on the calibration splits"),
        (["--warm-up", "max_length=6"], "more than max_length 6"),
    ],
)
def test_what_cant_be_ends_with_exit_code_2(
    tmp_path: Path, recipe: Any, calibudget: Callable[..., Any], arguments: Any, words: str
) -> None:
    outcome = calibudget("influence", recipe, *arguments, "--output-dir", tmp_path / "influence")
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "influence").exists()


def test_a_dry_run_counts_and_begins_nothing(
    tmp_path: Path, recipe: Any, calibudget: Callable[..., Any], tiny_directory: Path
) -> None:
    output = tmp_path / "influence"
    shown = calibudget("influence", recipe, "--dry-run", "--warm-up-share", "0.3", "--output-dir", output, "--json")
    found = json.loads(shown.out)
    encoder = Encoder("alpaca", load_tokenizer(str(tiny_directory)))
    splits = prepare(load_recipe(recipe)).splits.values()
    lengths = [encoder.encode(record).total_length for split in splits for record in split.candidates]
    assert found["calibration"] == {"apples": 4, "pears": 4}
    assert (found["candidates"], found["tokens"], found["longest"]) == (24, sum(lengths), max(lengths))
    assert found["warm_up_examples"] == 3 + 5
    assert not output.exists()

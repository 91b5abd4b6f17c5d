"""`calibudget influence` from the command line, on to `proxy` and `run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.pipeline.prepare import prepare
from calibudget.recipe.load import load_recipe
from tests.conftest import fruit_recipe


@pytest.fixture
def recipe(tmp_path: Path, tiny_directory: Path) -> Any:
    return fruit_recipe(tmp_path, count=16, model=str(tiny_directory))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shard", "4"], "there are shards 0 to 3"),
        (["--warm-up", "rank"], "--warm-up 'rank' isn't KEY=VALUE"),
        (["--warm-up-share", "2"], "above 0 and at most 1"),
        (["--warm-up", "max_length=6"], "more than max_length 6"),
    ],
)
def test_what_cant_be_ends_with_exit_code_2(
    tmp_path: Path, recipe: Any, calibudget: Any, arguments: Any, words: str
) -> None:
    outcome = calibudget("influence", recipe, *arguments, "--output-dir", tmp_path / "influence")
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "influence").exists()


def test_a_dry_run_counts_and_begins_nothing(
    tmp_path: Path, recipe: Any, calibudget: Any, tiny_directory: Path
) -> None:
    output = tmp_path / "influence"
    shown = calibudget("influence", recipe, "--dry-run", "--warm-up-share", "0.3", "--output-dir", output, "--json")
    found = json.loads(shown.out)
    encoder = Encoder("alpaca", load_tokenizer(str(tiny_directory)))
    splits = prepare(load_recipe(recipe)).splits.values()
    lengths = [encoder.encode(record).total_length for split in splits for record in split.candidates]
    assert found["calibration"] == {"apples": 4, "pears": 4}
    assert (found["candidates"], found["tokens"], found["longest"]) == (24, sum(lengths), max(lengths))
    assert found["warm_up_examples"] == 4 + 4
    assert not output.exists()

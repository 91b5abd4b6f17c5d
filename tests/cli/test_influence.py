"""`calibudget influence` from the command line, on to `proxy` and `run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.store.canonical import read_object

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
OPTIONS = ["--device", "cpu", "--dimension", "256", "--shards", "2", "--warm-up-share", "0.3"]
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


@pytest.mark.slow
def test_shards_are_scored_apart_merged_and_selected_by(
    tmp_path: Path, recipe: Any, calibudget: Callable[..., Any]
) -> None:
    output = tmp_path / "influence"
    first = calibudget("influence", recipe, "--output-dir", output, *OPTIONS, *WARM_UP, "--shard", "0")
    assert first.code == 0, first.err
    assert "not merged: the other shards are still to be scored" in first.out
    second = calibudget("influence", recipe, "--output-dir", output, *OPTIONS, *WARM_UP, "--shard", "1", "--json")
    body = json.loads(second.out)
    assert body["schema"] == "calibudget.influence/1"
    assert (body["pool_size"], body["subgroups"], body["merged"]) == (24, ["apples", "pears"], "influence.jsonl")
    shards = [output / f"influence-{shard}-of-2.jsonl" for shard in (1, 0)]
    named = ["--subgroup", "apples", "--subgroup", "pears", "--shards", "2"]
    merged = calibudget("proxy", "merge", *shards, "--output", tmp_path / "merged.jsonl", *named)
    assert merged.code == 0, merged.err
    assert (tmp_path / "merged.jsonl").read_bytes() == (output / "influence.jsonl").read_bytes()
    selector = f"selector.influence={{file: {output / 'influence.jsonl'}, shards: 2}}"
    ran = calibudget("run", recipe, selector, "--output-dir", tmp_path / "run")
    assert ran.code == 0, ran.err
    assert read_object(tmp_path / "run" / "selection.json")["selector"] == "influence"
    again = calibudget(
        "influence", tmp_path / "run", "--data-dir", tmp_path, "--output-dir", output, *OPTIONS, *WARM_UP
    )
    assert again.code == 0, again.err
    assert calibudget("verify", tmp_path / "run", "--data-dir", tmp_path).code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shard", "4"], "there are shards 0 to 3"),
        (["--dimension", "0"], "dimension must be 1 to"),
        (["--warm-up", "luck=1"], "luck"),
        (["--warm-up", ""], "--warm-up '' isn't KEY=VALUE"),
        (["--warm-up", "=3"], "--warm-up '=3' isn't KEY=VALUE"),
        (["--warm-up", "rank"], "--warm-up 'rank' isn't KEY=VALUE"),
        (["--warm-up-share", "2"], "above 0 and at most 1"),
        (["calibration=none", "policy=equal"], "measured on the calibration splits"),
    ],
)
def test_what_cant_be_ends_with_exit_code_2(
    tmp_path: Path, recipe: Any, calibudget: Callable[..., Any], arguments: Any, words: str
) -> None:
    outcome = calibudget("influence", recipe, *arguments, "--output-dir", tmp_path / "influence")
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "influence").exists()

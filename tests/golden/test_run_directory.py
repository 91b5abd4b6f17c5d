"""A run directory of an earlier build verifies under this one (modelscope/ms-swift #3292: counts change silently).

`python tests/golden/test_run_directory.py` writes the directory anew: only when a format's version number rises.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.train_set import read_train

GOLDEN = Path(__file__).parent / "run-0.1"
RECIPE = """\
engine: fake
budget: 24
floor: 4
calibration: {per_source: 6, resamples: 8}
sources:
  boolq: {path: boolq.jsonl, answer: {kind: choice, labels: ["true", "false"]}}
  piqa: {path: piqa.jsonl, answer: {kind: choice, labels: ["true", "false"]}}
companion: {path: math.jsonl, answer: none}
"""


def make(directory: Path) -> Any:
    for name, count in (("boolq", 20), ("piqa", 30), ("math", 3)):
        rows = [
            {"prompt": f"{name} question {number}?", "completion": ["true", "false"][number * number % 7 % 2]}
            for number in range(count)
        ]
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "recipe.yaml").write_text(RECIPE)
    return run(load_recipe(directory / "recipe.yaml"), directory / "run")


def test_a_run_of_an_earlier_build_verifies(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "run")
    assert verify(tmp_path / "run").differences == ()


def test_the_same_recipe_gives_the_same_quotas_and_picks_today(tmp_path: Path) -> None:
    today = make(tmp_path)
    then = json.loads((GOLDEN / "selection.json").read_text())
    assert {label: row["quota"] for label, row in then["sources"].items()} == today.plan.quotas
    assert then["selected_sha256"] == today.selected_sha256
    before, after = ([*read_train(folder / "train.jsonl")] for folder in (GOLDEN, tmp_path / "run"))
    assert [(row["record_id"], row["original"]) for row in after] == [
        (row["record_id"], row["original"]) for row in before
    ]
    assert (GOLDEN / "statistics.json").read_bytes() == (tmp_path / "run/statistics.json").read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary))
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(Path(temporary) / "run", GOLDEN, ignore=shutil.ignore_patterns(".*"))
        sys.stdout.write(f"{GOLDEN}: {verify(GOLDEN).differences}\n")

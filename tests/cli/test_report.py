"""`calibudget explain`: the lines of one quota on 80 columns, and as JSON; what `report` refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe

RECIPE = """
engine: fake
budget: 60
floor: 10
calibration: {per_source: 30, resamples: 20}
sources:
  "quoted \\" <b>label": {path: a.jsonl, answer: {kind: choice, labels: ["true", "false"]}}
  plain: {path: b.jsonl, answer: {kind: choice, labels: ["true", "false"]}}
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    for name in "ab":
        rows = [{"prompt": f"{name} {n}?", "completion": "true" if n % 3 else "false"} for n in range(90)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "recipe.yaml").write_text(RECIPE)
    return run(load_recipe(root / "recipe.yaml"), root / "run").directory


def test_explain_tells_the_lines_of_one_quota(run_dir: Path, calibudget: Any) -> None:
    told = calibudget("explain", run_dir, "plain")
    quota = json.loads((run_dir / "allocation.json").read_text())["sources"]["plain"]["quota"]
    assert told.code == 0
    sentence, *lines = told.out.splitlines()
    assert sentence.startswith(f"plain gets {quota} of 60 examples: 10 by its floor, and {quota - 10} ")
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["quota", str(quota), "=", "10", "+", str(quota - 10)]
    document = json.loads(calibudget("explain", run_dir, "plain", "--json").out)
    assert document["schema"] == "calibudget.explanation/1"
    assert document["steps"][-1] == {"name": "quota", "formula": f"10 + {quota - 10}", "value": quota}


def test_a_directory_of_neither_kind_is_refused(calibudget: Any, tmp_path: Path) -> None:
    told = calibudget("report", tmp_path)
    assert told.code == 2
    assert "is no run directory (no recipe.resolved.yaml) and no study's (no frozen.json)" in told.err
    assert "no such directory" in calibudget("report", tmp_path / "gone").err

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline import run
from calibudget.recipe import load_recipe

RECIPE = """
model: {model}
budget: 12
floor: 4
data_dir: {data}
calibration: {{per_source: 4, resamples: 2, max_new_tokens: 4}}
error: nll
sources:
  apples: {{path: apples.jsonl, answer: none}}
  pears: {{path: pears.jsonl, answer: none}}
companion: {{path: companion.jsonl, answer: none}}
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_directory: Path) -> Any:
    """A finished run with the tiny model; to be copied, never changed."""
    root = tmp_path_factory.mktemp("export")
    for label in ("apples", "pears", "companion"):
        rows = [
            {"prompt": f"How many {label} are {i} and {i + 1}?", "completion": f"the correct answer is answer{i % 2}"}
            for i in range(24 if label != "companion" else 3)
        ]
        (root / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "recipe.yaml").write_text(RECIPE.format(model=tiny_directory, data=root))
    run(load_recipe(root / "recipe.yaml"), root / "run")
    return root / "run"

"""Scoring, verifying and training by commands over a model in few bits, as bitsandbytes makes it on a CPU."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import fruit_recipe

pytestmark = [
    pytest.mark.skipif(
        find_spec("bitsandbytes") is None, reason="bitsandbytes isn't installed: pip install 'calibudget[quantized]'"
    ),
    pytest.mark.filterwarnings("ignore::calibudget.allocation.bootstrap.SmallCalibrationWarning"),
]
TRAINING = ("rank=4", "epochs=4", "batch_size=4", "max_length=128", "learning_rate=0.002", "device=cpu")


@pytest.fixture(params=["nf4", "int8"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def run_dir(calibudget: Any, tiny_directory: Path, tmp_path: Path, kind: str) -> Path:
    """A run that was scored with the tiny model in few bits."""
    calibration = {"per_source": 6, "device": "cpu", "max_new_tokens": 4}
    fields: dict[str, Any] = {"model": str(tiny_directory), "budget": 16, "cache": False, "calibration": calibration}
    recipe = fruit_recipe(tmp_path, count=30, checked=True, **fields)
    done = calibudget("run", recipe, f"calibration.dtype={kind}", "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    return tmp_path / "run"


def test_a_run_names_how_its_model_was_quantised_and_is_scored_again_likewise(
    calibudget: Any, run_dir: Path, tiny_directory: Path, tmp_path: Path, kind: str
) -> None:
    model = json.loads((run_dir / "manifest.json").read_text())["scorer"]["model"]
    assert model["quantised"]["method"] == "bitsandbytes"
    assert model["quantised"]["load_in_4bit" if kind == "nf4" else "load_in_8bit"] is True
    scored_again = ("verify", run_dir, "--data-dir", tmp_path, "--model", tiny_directory)
    verified = calibudget(*scored_again)
    assert verified.code == 0, verified.out + verified.err
    recipe = run_dir / "recipe.resolved.yaml"
    assert f"dtype: {kind}" in recipe.read_text()


def test_factors_are_trained_over_weights_in_few_bits(calibudget: Any, run_dir: Path, kind: str) -> None:
    trained = calibudget("train", run_dir, *TRAINING, f"dtype={kind}")
    assert trained.code == 0, trained.err
    losses = [json.loads(line)["loss"] for line in (run_dir / "training.jsonl").read_text().splitlines()]
    assert len(losses) == 16
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    assert "bitsandbytes" in (run_dir / "adapter" / "README.md").read_text()
    assert calibudget("verify", run_dir).code == 0

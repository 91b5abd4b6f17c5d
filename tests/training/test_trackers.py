"""What runs report to trackers: real local stores of trackio and mlflow, read back beside the artefact."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DependencyError, InputError
from calibudget.training.trackers import _shown, report_once

SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 - made up
RECIPE = """
engine: fake
budget: 30
floor: 5
calibration: {per_source: 30, resamples: 20}
sources:
  a: {path: a.jsonl, answer: true_false}
  "b é": {path: b.jsonl, answer: true_false}
"""


@pytest.fixture
def ran(tmp_path: Path) -> Any:
    """Runs a recipe that reports to a tracker; returns its output and its allocation."""

    def run(tracker: str) -> Any:
        pytest.importorskip(tracker, reason=f"{tracker} isn't installed")
        for label in "ab":
            rows = [{"prompt": f"{label} {n}?", "completion": "true" if n % 3 else "false"} for n in range(90)]
            (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE)
        store = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri()}
        store |= {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET}
        command = [sys.executable, "-m", "calibudget", "run", "recipe.yaml", "--output-dir", "run"]
        command += ["--report-to", tracker, "--json"]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | store, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert SECRET.encode() not in everything + done.stdout.encode() + done.stderr.encode()
        return json.loads(done.stdout), json.loads((tmp_path / "run" / "allocation.json").read_bytes())["sources"]

    return run


def numbers_of(result: Any, sources: Any) -> dict[str, float]:
    """What must be in a store, made from the artefact."""
    found = {"budget": 30.0, "count": 30.0, "companion_count": 0.0}
    for label, name in (("a", "a"), ("b é", "b _")):
        found[f"quotas/{name}"] = sources[label]["quota"]
        kept = {field: value for field, value in sources[label].items() if isinstance(value, int | float)}
        found |= {f"factors/{name}/{field}": value for field, value in kept.items()}
    return found


def test_mlflow_has_every_quota_factor_and_digest(ran: Any, tmp_path: Path) -> None:
    result, sources = ran("mlflow")
    (folder,) = (tmp_path / "mlruns").glob("*/*/metrics")
    shown = {
        path.relative_to(folder).as_posix(): float(path.read_text().split()[1])
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert shown == pytest.approx(numbers_of(result, sources), rel=1e-12)
    assert (folder.parent / "params" / "manifest_sha256").read_text() == result["manifest_sha256"]
    assert (folder.parent / "params" / "selected_sha256").read_text() == result["selected_sha256"]


def test_trackio_has_every_quota_factor_and_digest(ran: Any, tmp_path: Path) -> None:
    result, sources = ran("trackio")
    with sqlite3.connect(tmp_path / "trackio" / "calibudget.db") as store:
        rows = [json.loads(text) for (text,) in store.execute("select metrics from metrics")]
        settings = [json.loads(text) for (text,) in store.execute("select config from configs")]
    store.close()
    assert any(row == pytest.approx(numbers_of(result, sources), rel=1e-12) for row in rows)
    assert settings[0]["manifest_sha256"] == result["manifest_sha256"]


def test_names_that_become_equal_are_kept_apart_and_trackers_that_cannot_be_had_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [*_shown([("q", "é"), ("q", "ü"), ("sha",)]).values()] == ["q/_", "q/_-2", "sha"]
    with pytest.raises(InputError, match=r"no tracker 'mlfow'; did you mean 'mlflow'"):
        report_once(["mlfow"], Path("x"), {})
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DependencyError, match="pip install wandb"):
        report_once(["wandb"], Path("x"), {})

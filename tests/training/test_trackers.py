"""What runs, evaluations and studies report: real local stores of the trackers, read back beside the artefacts."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calibudget.errors import DependencyError, InputError
from calibudget.study.protocol import load_protocol
from calibudget.study.run import freeze_study, run_study
from calibudget.training.trackers import _shown, report_once
from tests.study.conftest import MadeUpRunner, write_study

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
#: Of every run in a store: its metrics and its settings.
Stored = list[tuple[dict[str, float], dict[str, str]]]


def _in_mlflow(root: Path) -> Stored:
    def texts(folder: Path) -> dict[str, str]:
        return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}

    return [
        ({name: float(text.split()[1]) for name, text in texts(run / "metrics").items()}, texts(run / "params"))
        for run in (folder.parent for folder in (root / "mlruns").glob("*/*/metrics"))
    ]


def _in_trackio(root: Path) -> Stored:
    with sqlite3.connect(root / "trackio" / "calibudget.db") as store:
        metrics = dict(store.execute("select run_name, metrics from metrics"))
        settings = dict(store.execute("select run_name, config from configs"))
    store.close()
    return [(json.loads(text), json.loads(settings.get(run, "{}"))) for run, text in metrics.items()]


def _in_tensorboard(root: Path) -> Stored:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = []
    for folder in root.rglob("*.tensorboard"):
        metrics: dict[str, float] = {}
        for path in folder.rglob("events*"):
            events = EventAccumulator(str(path))
            events.Reload()
            metrics |= {name: events.Scalars(name)[-1].value for name in events.Tags()["scalars"]}
        lines = [line.split(": ") for path in folder.rglob("hparams.yml") for line in path.read_text().splitlines()]
        runs.append((metrics, {line[0]: line[-1] for line in lines}))
    return runs


def _in_wandb(root: Path) -> Stored:
    from wandb.proto.wandb_internal_pb2 import Record

    runs = []
    for path in root.glob("wandb/offline-run-*/run-*.wandb"):
        metrics: dict[str, float] = {}
        settings: dict[str, str] = {}
        for data in _wandb_records(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            metrics |= {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in record.history.item}
            for one in (*record.run.config.update, *record.config.update):
                settings[one.key] = json.loads(one.value_json)
        runs.append(({name: value for name, value in metrics.items() if not name.startswith("_")}, settings))
    return runs


def _wandb_records(data: bytes) -> Iterator[bytes]:
    """Records of LevelDB's log format, after a head of seven bytes."""
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            yield record
            record = b""


STORES: dict[str, Callable[[Path], Stored]] = {
    "mlflow": _in_mlflow,
    "trackio": _in_trackio,
    "tensorboard": _in_tensorboard,
    "wandb": _in_wandb,
}


def _calibudget(root: Path, *arguments: str) -> str:
    settings = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": (root / "mlruns").as_uri()}
    settings |= {"TRACKIO_DIR": str(root / "trackio"), "WANDB_MODE": "offline"}
    settings |= {"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET}
    command = [sys.executable, "-m", "calibudget", *arguments]
    done = subprocess.run(command, cwd=root, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


def _is_among(expected: dict[str, float], stored: Stored) -> dict[str, str]:
    """The settings of the one run that has exactly these metrics; some stores keep four bytes a number."""
    found = [settings for metrics, settings in stored if metrics == pytest.approx(expected, rel=1e-6)]
    assert len(found) == 1
    return found[0]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tracker", STORES)
def test_a_tracker_has_the_numbers_and_digests_of_run_evaluation_and_study(tracker: str, tmp_path: Path) -> None:
    pytest.importorskip(tracker, reason=f"{tracker} isn't installed")
    for label in "ab":
        rows = [{"prompt": f"{label} {n}?", "completion": "true" if n % 3 else "false"} for n in range(90)]
        (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    items = [{"goal": f"Goal {n}.", "sol1": "Twist.", "sol2": "Sing.", "label": n % 2} for n in range(5)]
    (tmp_path / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in items))
    study = tmp_path / "study"
    protocol = load_protocol(write_study(tmp_path / "protocol"))
    freeze_study(protocol, study)
    run_study(protocol, study, runner=MadeUpRunner())

    told = ["--report-to", tracker]
    result = json.loads(_calibudget(tmp_path, "run", "recipe.yaml", "--output-dir", "run", "--json", *told))
    _calibudget(tmp_path, "evaluate", "run", "--tasks", "piqa=piqa.jsonl", "--data-dir", ".", *told)
    _calibudget(tmp_path, "study", "report", "study", *told)

    stored = STORES[tracker](tmp_path)
    assert len(stored) == 3
    settings = _is_among(_numbers_of_run(tmp_path / "run"), stored)
    assert settings["manifest_sha256"] == result["manifest_sha256"]
    assert settings["selected_sha256"] == result["selected_sha256"]
    task = json.loads((tmp_path / "run" / "evaluation.json").read_bytes())["tasks"]["piqa"]
    (evaluated,) = (metrics for metrics, _ in stored if "tasks/piqa/score" in metrics)
    kept = {name: evaluated[f"tasks/piqa/{name}"] for name in ("items", "right", "score", "mean_nll")}
    assert kept == pytest.approx({name: task[name] for name in kept}, rel=1e-6)
    (reported,) = (metrics for metrics, _ in stored if "budget" not in metrics and metrics is not evaluated)
    assert sorted(reported.values()) == pytest.approx(sorted(_numbers_of_tables(study / "report" / "tables")), rel=1e-6)
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything


def _numbers_of_run(run_dir: Path) -> dict[str, float]:
    sources = json.loads((run_dir / "allocation.json").read_bytes())["sources"]
    expected = {"budget": 30.0, "count": 30.0, "companion_count": 0.0}
    for label, name in (("a", "a"), ("b é", "b _")):
        expected[f"quotas/{name}"] = sources[label]["quota"]
        kept = {field: value for field, value in sources[label].items() if isinstance(value, int | float)}
        expected |= {f"factors/{name}/{field}": value for field, value in kept.items()}
    return expected


def _numbers_of_tables(tables: Path) -> Iterator[float]:
    for path in tables.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for row in list(csv.reader(file))[1:]:
                for cell in row:
                    try:
                        yield float(cell)
                    except ValueError:
                        continue


def test_names_that_become_equal_are_kept_apart_and_trackers_that_cannot_be_had_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [*_shown([("q", "é"), ("q", "ü"), ("sha",)]).values()] == ["q/_", "q/_-2", "sha"]
    with pytest.raises(InputError, match=r"no tracker 'mlfow'; did you mean 'mlflow'"):
        report_once(["mlfow"], Path("x"), {})
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DependencyError, match="pip install wandb"):
        report_once(["wandb"], Path("x"), {})

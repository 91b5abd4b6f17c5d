"""`calibudget study` as people type it: quotas alone, from the fake scorer through the whole pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import AllocationError
from calibudget.study.cell_records import CELL, CellOutcome, TaskMetrics
from calibudget.study.freeze import plan_cells, read_frozen
from calibudget.study.protocol import load_protocol
from calibudget.study.run import freeze_study
from tests.study.conftest import with_points

pytestmark = pytest.mark.slow

POINTS = """\
points:
  splits:
    status: confirmatory
    budget: 24
    floor: 4
    seeds: [42, 43, 44]
    policies: [val-error-floor, calibudget]
    train: false
"""


@pytest.fixture
def calibudget(calibudget: Any) -> Any:
    """Its exit code, output and messages."""
    return lambda *arguments: astuple(calibudget("study", *arguments))


@pytest.fixture
def quotas_only(small: Path) -> Any:
    return with_points(small, POINTS)


def test_freeze_run_and_report(calibudget: Callable[..., Any], quotas_only: Path) -> None:
    directory = quotas_only.parent / "study"
    code, out, _ = calibudget("freeze", quotas_only, "--output-dir", directory, "--json")
    assert code == 0
    frozen = json.loads(out)
    assert (frozen["cells"], frozen["version"], set(frozen["digests"])) == (
        6,
        0,
        {"protocol", "recipe", "data", "code"},
    )
    code, out, _ = calibudget("run", quotas_only, "--output-dir", directory, "--json")
    assert code == 0
    told = json.loads(out)
    assert len(told["finished"]) == 6
    assert told["failed"] == told["stopped"] == {}
    code, out, _ = calibudget("report", directory)
    assert code == 0
    text = (directory / "report" / "report.md").read_text()
    assert out.strip().endswith("report.md")
    assert "### Quotas between calibration splits" in text
    assert (directory / "report" / "figures" / "overview-splits-tiny.svg").read_text().startswith("<?xml")
    left = json.loads(calibudget("run", quotas_only, "--output-dir", directory, "--dry-run", "--json")[1])
    assert (left["backbones"]["tiny"]["cells"], left["backbones"]["tiny"]["left"]) == (6, 0)
    quotas_only.write_text(quotas_only.read_text().replace("floor: 4", "floor: 5"))
    code, _, err = calibudget("run", quotas_only, "--output-dir", directory)
    assert code == 1
    assert "points.splits.floor: 4 then, 5 now" in err
    assert calibudget("freeze", quotas_only, "--output-dir", directory, "--amend")[0] == 0


def test_failed_cells_exit_with_1_and_are_listed(
    calibudget: Callable[..., Any], quotas_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: Any, **_more: Any) -> None:
        raise AllocationError("no luck")

    monkeypatch.setattr("calibudget.study.cell.run", refuse)
    directory = quotas_only.parent / "study"
    calibudget("freeze", quotas_only, "--output-dir", directory)
    code, out, err = calibudget("run", quotas_only, "--output-dir", directory)
    assert code == 1
    assert out.startswith("0 cells finished, 6 failed, 0 stopped")
    assert "failed: splits/tiny/calibudget/42: AllocationError" in out
    assert "6 cells failed" in err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "budget: 24",
            "budget: 100000",
            "points.splits: cell splits/tiny/val-error-floor/42: the budget 100,000 is 99,923 ",
        ),
        (
            "floor: 4",
            "floor: 9",
            "points.splits: cell splits/tiny/val-error-floor/42: the floors of 3 sources come to 27, ",
        ),
    ],
)
def test_a_point_that_no_quotas_can_meet_is_refused_before_anything_is_frozen(
    calibudget: Callable[..., Any], quotas_only: Path, old: str, new: str, told: str
) -> None:
    quotas_only.write_text(quotas_only.read_text().replace(old, new))
    directory = quotas_only.parent / "study"
    for arguments in (("freeze", quotas_only, "--output-dir", directory), ("run", quotas_only, "--dry-run")):
        code, _, err = calibudget(*arguments)
        assert code == 2
        assert told in err
    assert not (directory / "frozen.json").exists()


def test_what_a_study_will_take_is_told_without_running(calibudget: Callable[..., Any], small: Path) -> None:
    code, out, _ = calibudget("run", small, "--dry-run", "--json")
    assert code == 0
    told = json.loads(out)["backbones"]["tiny"]
    assert (told["cells"], told["left"], told["hours"]) == (30, 28, None)
    assert told["items"] == 16 * 12
    assert told["scored"] == 3 * 18  # three splits, each scored once for all points and policies
    assert "doesn't say how many" in told["by"]
    small.write_text(small.read_text().replace("{model: none}", "{model: none, parameters: 6738000000}"))
    told = json.loads(calibudget("run", small, "--dry-run", "--json")[1])["backbones"]["tiny"]
    assert told["gib"] == pytest.approx(50.3)
    per_second = 28_738 / 181 * 134.5e6 / 6.738e9
    parts = (told["train_tokens"] / 18_377, told["scored"] * 5.52 / 800, told["items"] / per_second)
    assert told["hours"] == pytest.approx(sum(parts) / 3600, rel=1e-3)


def test_a_dry_run_goes_by_the_cells_that_are_finished(calibudget: Callable[..., Any], quotas_only: Path) -> None:
    """A protocol of one trained point, whose first seed a made-up runner has made: its own seconds, and its split's."""
    text = quotas_only.read_text().replace("    train: false\n", "").replace("[42, 43, 44]", "[42, 43]")
    quotas_only.write_text(text)
    directory = quotas_only.parent / "study"
    protocol = load_protocol(quotas_only)
    freeze_study(protocol, directory)
    seconds = {"calibrate": 30.0, "train": 100.0}
    taken = {"calibrate": 0.0, "train": 120.0}
    tasks = {task: TaskMetrics(items=6, metrics={}) for task in ("boolq", "openbookqa")}
    for planned in plan_cells(protocol, read_frozen(directory), directory)[:2]:
        used = taken if planned.cell.policy == "calibudget" else seconds
        planned.directory.mkdir(parents=True)
        result = CellOutcome(quotas={}, tasks=tasks, seconds=used).of_cell(planned.cell, planned.digests)
        CELL.write(planned.directory / CELL.name, result)
    told = json.loads(calibudget("run", quotas_only, "--output-dir", directory, "--dry-run", "--json")[1])
    told = told["backbones"]["tiny"]
    assert (told["left"], told["scored"]) == (2, 18)
    assert told["hours"] == pytest.approx((2 * 110 + 30) / 3600)

"""`calibudget study` as people type it: quotas alone, from the fake scorer through the whole pipeline."""

from __future__ import annotations

import json
import sys

import pytest

from calibudget.cli.entry import entry

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
def calibudget(monkeypatch, capsys):
    """Runs `calibudget study` with these arguments; its exit code, output and messages."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["calibudget", "study", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            entry()
        captured = capsys.readouterr()
        return int(leave.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def quotas_only(small):
    text = small.read_text()
    small.write_text(text[: text.index("\npoints:") + 1] + POINTS)
    return small


def test_freeze_run_and_report(calibudget, quotas_only) -> None:
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


def test_another_protocol_than_the_frozen_exits_with_1_until_it_is_amended(calibudget, quotas_only) -> None:
    directory = quotas_only.parent / "study"
    calibudget("freeze", quotas_only, "--output-dir", directory)
    quotas_only.write_text(quotas_only.read_text().replace("floor: 4", "floor: 5"))
    code, _, err = calibudget("run", quotas_only, "--output-dir", directory)
    assert code == 1
    assert "points.splits.floor: 4 then, 5 now" in err
    assert calibudget("freeze", quotas_only, "--output-dir", directory, "--amend")[0] == 0
    code, out, _ = calibudget("run", quotas_only, "--output-dir", directory, "--json")
    assert code == 0
    assert json.loads(out)["statuses"] == {"splits": "exploratory"}


def test_failed_cells_exit_with_1_and_are_listed(calibudget, quotas_only) -> None:
    quotas_only.write_text(quotas_only.read_text().replace("budget: 24", "budget: 100000"))
    directory = quotas_only.parent / "study"
    calibudget("freeze", quotas_only, "--output-dir", directory)
    code, out, err = calibudget("run", quotas_only, "--output-dir", directory)
    assert code == 1
    assert out.startswith("0 cells finished, 6 failed, 0 stopped")
    assert "failed: splits/tiny/calibudget/42: AllocationError" in out
    assert "6 cells failed" in err


def test_what_a_study_will_take_is_told_without_running(calibudget, small) -> None:
    code, out, _ = calibudget("run", small, "--dry-run", "--json")
    assert code == 0
    told = json.loads(out)["backbones"]["tiny"]
    assert (told["cells"], told["left"], told["hours"]) == (30, 28, None)
    assert told["items"] == 16 * 12
    assert "doesn't say how many" in told["by"]
    small.write_text(small.read_text().replace("{model: none}", "{model: none, parameters: 6738000000}"))
    told = json.loads(calibudget("run", small, "--dry-run", "--json")[1])["backbones"]["tiny"]
    assert told["gib"] == pytest.approx(50.3)
    assert told["hours"] > told["train_tokens"] / 18_377 / 3600


def test_without_the_data_a_dry_run_invents_no_figures(calibudget, small) -> None:
    recipe = small.parent / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("data_dir: data", "data_dir: gone"))
    code, out, _ = calibudget("run", small, "--dry-run", "--json")
    assert code == 0
    told = json.loads(out)["backbones"]["tiny"]
    assert told["train_tokens"] is told["hours"] is None
    assert told["unread"][0].startswith("sources can't be read, so token counts are unknown: ")
    assert "unknown" in calibudget("run", small, "--dry-run")[1]

"""Freezing, running and amending a study, with cells that are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, CheckFailedError, InterruptedRunError, StudyError
from calibudget.store.checksums import code_sha256
from calibudget.study import freeze
from calibudget.study.cell_records import CELL, ITEMS_NAME, read_cell
from calibudget.study.freeze import read_frozen
from calibudget.study.protocol import load_protocol
from calibudget.study.run import StudyOutcome, freeze_study, run_study

pytestmark = pytest.mark.slow


@pytest.fixture
def frozen(small: Path) -> Path:
    """A frozen study's directory, beside its protocol."""
    directory = small.parent / "study"
    freeze_study(load_protocol(small), directory)
    return directory


def go(small: Path, runner: Any, *, directory: str = "study") -> StudyOutcome:
    return run_study(load_protocol(small), small.parent / directory, runner=runner)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def amend(small: Path) -> None:
    freeze_study(load_protocol(small), small.parent / "study", amend=True)


def test_every_cell_is_made_once(small: Any, frozen: Any, runner: Any) -> None:
    outcome = go(small, runner)
    assert len(outcome.grid.results) == 30
    assert len(runner.asked) == 28
    assert not any(name.startswith("transferred") and name.endswith("42") for name in runner.asked)
    assert not outcome.grid.failed
    assert not outcome.grid.stopped
    assert outcome.statuses == {
        "main": "confirmatory",
        "low-floor": "exploratory",
        "transferred": "exploratory",
        "splits": "exploratory",
    }
    again = go(small, runner)
    assert again.grid.results == outcome.grid.results
    assert len(runner.asked) == 28
    # a cell that two points share has one outcome, and its files in both folders
    results = {cell.name: result for cell, result in outcome.grid.results.items()}
    own, shared = (results[f"{point}/tiny/calibudget/42"] for point in ("main", "transferred"))
    assert replace(own, cell=shared.cell) == shared
    assert own.cell.point == "main"
    items = [
        (frozen / "cells" / f"{point}/tiny/calibudget/42/items.parquet").read_bytes()
        for point in ("main", "transferred")
    ]
    assert items[0] == items[1]


def test_a_failed_cell_spoils_no_other_and_is_tried_again(small: Any, frozen: Path, runner: Any) -> None:
    name = "main/tiny/equal/42"
    for error, traced in ((StudyError("no luck"), False), (ZeroDivisionError("ours"), True)):
        runner.broken = {name: error}
        outcome = go(small, runner)
        assert list(outcome.grid.failed.values()) == [f"{type(error).__name__}: {error}"]
        assert len(outcome.grid.results) == 29
        note = json.loads((frozen / "cells" / name / "failure.json").read_bytes())
        assert note["message"] == str(error)
        assert ("Traceback" in str(note["trace"])) == traced
    runner.broken = {}
    assert len(go(small, runner).grid.results) == 30
    assert runner.asked.count(name) == 3
    assert not (frozen / "cells" / name / "failure.json").exists()


def test_an_interrupted_grid_goes_on_where_it_stopped(small: Any, frozen: Path, runner: Any) -> None:
    runner.broken = {"main/tiny/calibudget/43": InterruptedRunError("stopped")}
    with pytest.raises(InterruptedRunError):
        go(small, runner)
    made = len(list(frozen.glob("cells/**/cell.json")))
    assert made == 7
    runner.broken = {}
    assert len(go(small, runner).grid.results) == 30
    assert runner.asked.count("main/tiny/calibudget/43") == 2
    assert len(runner.asked) == 29


def test_the_continuation_criterion_stops_the_remaining_seeds(small: Any, frozen: Any, runner: Any) -> None:
    edit(small, "of_point: main, margin: 0.5", "bound: 1.5")
    amend(small)
    outcome = go(small, runner)
    stopped = {cell.name: reason for cell, reason in outcome.grid.stopped.items()}
    assert set(stopped) == {f"low-floor/tiny/{p}/{s}" for p in ("calibudget", "val-error-floor") for s in (43, 44)}
    assert "asked" in stopped["low-floor/tiny/calibudget/43"]
    assert "1.5000" in stopped["low-floor/tiny/calibudget/43"]
    assert not any(name in stopped for name in runner.asked)


def test_what_differs_from_the_frozen_is_refused_and_named(small: Path, frozen: Any, runner: Any) -> None:
    main = "floor: 4, seeds: [42, 43]}"
    for file, old, new, told in (
        ("protocol.yaml", main, main.replace("4", "5", 1), r"points\.main\.floor: 4 then, 5"),
        ("protocol.yaml", "margin: 0.5", "margin: 0.25", r"protocol: points\.low-floor\.continue_if\.margin"),
        ("recipe.yaml", "resamples: 8", "resamples: 9", r"recipe: calibration\.resamples: 8 then, 9"),
        ("data/piqa.train.jsonl", "Is piqa 3 so", "Is piqa 3 it", r"data: source piqa\.piqa\.train\.jsonl"),
        ("data/boolq.test.jsonl", "Is boolq 501 so", "Is boolq 501 it", r"data: task boolq"),
    ):
        edit(small.parent / file, old, new)
        with pytest.raises(CheckFailedError, match=told):
            go(small, runner)
        edit(small.parent / file, new, old)
    assert runner.asked == []
    assert go(small, runner).grid.results


def test_other_code_is_refused(small: Any, frozen: Any, runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibudget.study.freeze.code_sha256", lambda *_: "0" * 64)
    with pytest.raises(CheckFailedError, match="code: "):
        go(small, runner)


def test_code_that_only_shows_results_isnt_bound(tmp_path: Path) -> None:
    import shutil

    import calibudget

    real = Path(calibudget.__file__).parent
    for part in ("study", "cli", "allocation"):
        shutil.copytree(real / part, tmp_path / "calibudget" / part)
    (tmp_path / "calibudget" / "__init__.py").write_text("")

    def digest() -> str:
        code_sha256.cache_clear()
        return code_sha256(*freeze.SHOWS, root=tmp_path / "calibudget")

    before = digest()
    (tmp_path / "calibudget" / "cli" / "main.py").write_text("")
    (tmp_path / "calibudget" / "study" / "reporting" / "claims.py").write_text("")
    assert digest() == before
    (tmp_path / "calibudget" / "allocation" / "rule.py").write_text("")
    assert digest() != before


def test_an_amendment_is_kept_and_what_it_touches_is_exploratory(small: Any, frozen: Path, runner: Any) -> None:
    go(small, runner)
    before = {path: path.read_bytes() for path in frozen.glob("cells/**/*.json")}
    edit(small, "status: confirmatory, budget: 24, floor: 4", "status: confirmatory, budget: 24, floor: 3")
    with pytest.raises(CheckFailedError):
        go(small, runner)
    amend(small)
    outcome = go(small, runner)
    assert outcome.statuses["main"] == "exploratory"
    assert len(runner.asked) == 28 + 8
    assert sorted(p.relative_to(frozen).parts[0] for p in frozen.glob("*/main/tiny/equal/42")) == ["amended-1", "cells"]
    assert {path: path.read_bytes() for path in before} == before
    assert [one.changed for one in read_frozen(frozen).versions] == [
        (),
        ("protocol: points.main.floor: 4 then, 3 now",),
    ]
    # taken back, the frozen cells are those in force again
    edit(small, "status: confirmatory, budget: 24, floor: 3", "status: confirmatory, budget: 24, floor: 4")
    amend(small)
    assert go(small, runner).statuses["main"] == "confirmatory"
    assert len(runner.asked) == 36


def test_a_point_added_later_is_exploratory_whatever_it_says(small: Path, frozen: Path, runner: Any) -> None:
    small.write_text(small.read_text() + "  later: {status: confirmatory, budget: 24, floor: 4, seeds: [7, 8]}\n")
    amend(small)
    outcome = go(small, runner)
    assert (outcome.statuses["main"], outcome.statuses["later"]) == ("confirmatory", "exploratory")
    assert (frozen / "amended-1" / "later").is_dir()
    assert not (frozen / "amended-1" / "main").exists()


def test_freezing_twice_or_into_other_files_is_refused(small: Path, frozen: Any) -> None:
    with pytest.raises(ArtefactError, match="--amend"):
        freeze_study(load_protocol(small), frozen)
    with pytest.raises(StudyError, match="nothing differs"):
        amend(small)
    with pytest.raises(ArtefactError, match="other files"):
        freeze_study(load_protocol(small), small.parent / "data")
    with pytest.raises(ArtefactError, match="no study is frozen"):
        run_study(load_protocol(small), small.parent / "nowhere")


def test_a_cell_from_elsewhere_is_refused(small: Any, frozen: Path, runner: Any) -> None:
    go(small, runner)
    cells = frozen / "cells" / "main" / "tiny"
    path = cells / "equal" / "42" / CELL.name
    whole = path.read_bytes()
    path.write_bytes((cells / "equal" / "43" / CELL.name).read_bytes())
    with pytest.raises(ArtefactError, match="main/tiny/equal/43"):
        go(small, runner)
    path.write_bytes(whole)
    result = read_cell(path)
    CELL.write(path, replace(result, digests={**result.digests, "data": "0" * 64}))
    with pytest.raises(ArtefactError, match="other data"):
        go(small, runner)
    path.write_bytes(whole)
    items = path.with_name(ITEMS_NAME)
    items.write_bytes((cells / "equal" / "43" / ITEMS_NAME).read_bytes())
    with pytest.raises(ArtefactError, match=ITEMS_NAME):
        go(small, runner)

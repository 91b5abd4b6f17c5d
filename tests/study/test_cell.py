"""A study on a tiny model through the whole pipeline: select, train and evaluate, from the command line as users do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import InterruptedRunError
from calibudget.pipeline.verify import verify
from calibudget.study.protocol import load_protocol
from calibudget.study.run import StudyOutcome, freeze_study, run_study
from tests.study.conftest import with_points

pytestmark = pytest.mark.slow

#: A policy with two seeds, and quotas of one seed with the other's training.
POINTS = """\
points:
  main: {budget: 24, floor: 4, seeds: [42, 43], policies: [calibudget]}
  fixed: {budget: 24, floor: 4, seeds: [43], policies: [calibudget], transfer: {seed: 42, picks: fixed}}
"""


@pytest.fixture
def tiny(tmp_path: Path, tiny_directory: Path, study_writer: Callable[..., Any]) -> Path:
    return with_points(study_writer(tmp_path / "tiny", model=str(tiny_directory), engine="local"), POINTS)


def test_a_stop_in_the_last_step_of_a_training_stops_the_study_which_goes_on_to_whole_cells(tiny: Path) -> None:
    directory, data = tiny.parent / "study", tiny.parent / "data"
    (data / "companion.jsonl").write_bytes((data / "boolq.test.jsonl").read_bytes())  # prompts of a task are trained on
    freeze_study(load_protocol(tiny), directory)

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "training" and done == total:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="stopped after step"):
        run_study(load_protocol(tiny), directory, progress=stop)
    assert not list(directory.glob("cells/**/cell.json"))
    assert len(list(directory.glob("cells/**/adapter"))) == 1
    (next(directory.glob("calibration/*/")) / ".calibudget-0123456789abcdef.tmp").touch()  # as a kill leaves it
    whole = run_study(load_protocol(tiny), directory)
    assert not list(directory.glob("calibration/*/*.tmp"))
    assert len(whole.grid.results) == 3
    for result in whole.grid.results.values():
        assert {task: one.shared for task, one in result.tasks.items()} == {"boolq": 6, "openbookqa": 0}
    check_cells(directory, whole, data)


def check_cells(directory: Path, outcome: StudyOutcome, data: Path) -> None:
    """Cells are whole runs that verify, paired by seed."""
    assert not outcome.grid.failed
    by_name = {cell.name: result for cell, result in outcome.grid.results.items()}
    for name, result in by_name.items():
        folder = directory / "cells" / name
        assert verify(folder / "run", data_dir=data).differences == ()
        assert sum(result.quotas.values()) == 24
        assert set(result.tasks) == {"boolq", "openbookqa"}
        assert all(one.items == 6 and one.metrics["nll"] is not None for one in result.tasks.values())
        assert not (folder / "training" / "adapter").exists()
        assert result.counts["train_tokens"] > 0

    def splits(name: str) -> bytes:
        return (directory / "cells" / name / "run" / "splits.parquet").read_bytes()

    assert splits("main/tiny/calibudget/42") == splits("fixed/tiny/calibudget/43")
    assert splits("main/tiny/calibudget/42") != splits("main/tiny/calibudget/43")
    assert len(list((directory / "calibration").iterdir())) == 2
    # fixed picks of seed 42 under the training seed 43: the same examples, another order of training
    selections = [
        json.loads((directory / "cells" / name / "run" / "selection.json").read_bytes())["selected_sha256"]
        for name in ("main/tiny/calibudget/42", "fixed/tiny/calibudget/43")
    ]
    assert selections[0] == selections[1]
    assert by_name["main/tiny/calibudget/42"].tasks != by_name["fixed/tiny/calibudget/43"].tasks

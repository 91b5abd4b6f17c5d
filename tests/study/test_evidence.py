"""A cell whose self digest fits but whose numbers aren't those of its own files, while resuming and in a report."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.study.cell_records import CELL, ITEMS_NAME, CellOutcome, ItemScore, TaskMetrics, read_cell, write_items
from calibudget.study.execution import check_evidence, digests_of_evidence
from calibudget.study.grid import cells_of
from calibudget.study.protocol import load_protocol
from calibudget.study.reporting.results import load_results
from calibudget.study.run import freeze_study, run_study
from tests.study.conftest import with_points

pytestmark = pytest.mark.slow

#: Quotas of a real run, and a second point that is the same work.
POINTS = """\
points:
  splits: {budget: 24, floor: 4, seeds: [42], policies: [calibudget], train: false}
  same: {budget: 24, floor: 4, seeds: [42], policies: [calibudget], train: false}
"""


def change(folder: Path, **outcome: Any) -> None:
    """Write a cell anew with another outcome, self digest and all."""
    result = read_cell(folder / CELL.name)
    CELL.write(folder / CELL.name, replace(result, **outcome))


def test_metrics_that_arent_those_of_the_items_are_refused(small: Path, runner: Any) -> None:
    protocol, directory = load_protocol(small), small.parent / "study"
    freeze_study(protocol, directory)
    run_study(protocol, directory, runner=runner)
    folder = directory / "cells/main/tiny/calibudget/42"
    whole = (folder / CELL.name).read_bytes()
    tasks = read_cell(folder / CELL.name).tasks

    def refused(named: str, edited: Mapping[str, TaskMetrics]) -> None:
        change(folder, tasks=edited)
        for read in (lambda: run_study(protocol, directory, runner=runner), lambda: load_results(directory)):
            with pytest.raises(ArtefactError, match=named) as told:
                read()
            assert str(folder) in str(told.value)
            assert "remove the cell's folder and run again" in str(told.value)
        (folder / CELL.name).write_bytes(whole)

    boolq = tasks["boolq"]
    wrong, undefined = {**boolq.metrics, "accuracy": 0.25 + 2 / 3}, {**boolq.metrics, "accuracy": None}
    accuracy = r"tasks\.boolq\.metrics\.accuracy: "
    refused(accuracy + r"0\.9166", {**tasks, "boolq": replace(boolq, metrics=wrong)})
    refused(accuracy + "None", {**tasks, "boolq": replace(boolq, metrics=undefined)})
    refused(r"tasks\.boolq\.items: 7, but items\.parquet holds 6", {**tasks, "boolq": replace(boolq, items=7)})
    refused(r"tasks\.boolq: is missing", {"openbookqa": tasks["openbookqa"]})
    assert load_results(directory).results


def test_deferred_verdicts_and_missing_references_are_what_the_items_say(small: Any, tmp_path: Path) -> None:
    values = {"accuracy": (1.0, None), "nll": (2.5, None)}
    items = [
        ItemScore(task="a", item=str(number), metric=metric, value=value)
        for metric, own in values.items()
        for number, value in enumerate(own)
    ]
    write_items(tmp_path / ITEMS_NAME, items)
    tasks = {"a": TaskMetrics(items=2, metrics={"accuracy": None, "nll": 2.5})}
    cell = cells_of(load_protocol(small))[0]
    result = CellOutcome(quotas={}, tasks=tasks, seconds={}).of_cell(cell, digests_of_evidence(tmp_path))
    check_evidence(result, tmp_path)
    half = replace(tasks["a"], metrics={"accuracy": 0.5, "nll": 2.5})
    edited = replace(result, tasks={"a": half})
    with pytest.raises(ArtefactError, match=r"metrics\.accuracy: 0\.5, but items\.parquet gives None"):
        check_evidence(edited, tmp_path)


def test_quotas_that_arent_the_runs_are_refused_in_a_copy_too(small: Path) -> None:
    protocol, directory = load_protocol(with_points(small, POINTS)), small.parent / "study"
    freeze_study(protocol, directory)
    quotas = [one.quotas for one in run_study(protocol, directory).grid.results.values()]
    assert quotas[0] == quotas[1]
    for point in ("splits", "same"):
        folder = directory / "cells" / point / "tiny/calibudget/42"
        whole = (folder / CELL.name).read_bytes()
        change(folder, quotas={**quotas[0], "boolq": quotas[0]["boolq"] + 1, "piqa": quotas[0]["piqa"] - 1})
        for read in (lambda: run_study(protocol, directory), lambda: load_results(directory)):
            with pytest.raises(ArtefactError, match=r"quotas\.boolq: \d+, but run/allocation\.json gives") as refused:
                read()
            assert str(folder) in str(refused.value)
        (folder / CELL.name).write_bytes(whole)
        allocation = folder / "run/allocation.json"
        kept = allocation.read_bytes()
        allocation.write_bytes(kept + b"\n")
        with pytest.raises(ArtefactError, match=r"digests\.allocation: run/allocation\.json isn't the file"):
            load_results(directory)
        allocation.write_bytes(kept)
    # the first one removed, as the message asks: made anew from the copy, with a run of its own
    first = directory / "cells/splits/tiny/calibudget/42"
    shutil.rmtree(first)
    again = run_study(protocol, directory)
    assert [one.quotas for one in again.grid.results.values()] == quotas
    assert (first / "run/allocation.json").read_bytes() == kept

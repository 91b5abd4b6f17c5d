from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store.canonical import sealed
from calibudget.study.cell_records import CELL, Cell, CellResult, TaskMetrics, read_cell

PLACE = Cell(
    point="main",
    policy="calibudget",
    backbone="tiny",
    seed=43,
    budget=10,
    floor=2,
    split_seed=43,
    selection_seed=43,
    calibrated_on="tiny",
)
RESULT = CellResult(
    cell=PLACE,
    quotas={"a": 4, "b": 6},
    tasks={"a": TaskMetrics(items=3, metrics={"accuracy": 1 / 3, "nll": None}, shared=2)},
    seconds={"train": 1.25},
    counts={"train_tokens": 900},
    environment={"device": "cpu"},
    digests=dict.fromkeys(("code", "data", "protocol"), "0" * 64),
)


@pytest.fixture
def stated(tmp_path: Path) -> dict[str, Any]:
    """The object of `cell.json`."""
    CELL.write(tmp_path / "stated.json", RESULT)
    found: dict[str, Any] = json.loads((tmp_path / "stated.json").read_text())
    return found


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("tasks", {"a": {"items": 1, "metrics": {"accuracy": "high"}}}, "tasks.a.metrics.accuracy"),
        ("digests", {"code": "0" * 64, "data": "0" * 64}, "digests: protocol"),
        ("verdict", True, "verdict"),
    ],
)
def test_a_field_that_isnt_what_it_should_be_is_named(
    tmp_path: Path, stated: dict[str, Any], field: str, value: object, named: str
) -> None:
    path = tmp_path / "cell.json"
    path.write_text(json.dumps(sealed({**stated, field: value}, "cell_sha256")))
    with pytest.raises(ArtefactError, match=named) as caught:
        read_cell(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_an_edited_cell_is_refused_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    CELL.write(path, RESULT)
    path.write_text(path.read_text().replace('"a":4,"b":6', '"a":6,"b":4'))
    with pytest.raises(ArtefactError, match="changed after it was written; remove the cell's folder") as refused:
        read_cell(path)
    assert str(tmp_path) in str(refused.value)

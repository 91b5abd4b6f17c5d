"""What a notebook shows of a run: the committed one is executed cell by cell, as a kernel would."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.verify import verify
from calibudget.records import AllocationPlan
from calibudget.store.artefacts import ALLOCATION
from tests.report.conftest import LABEL, Page

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def execute(cells: list[str]) -> list[Any]:
    """The value of each cell's last expression."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body.pop()
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102
        assert isinstance(last, ast.Expr)
        values.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))  # noqa: S307
    return values


def test_the_committed_notebook_runs_and_shows_its_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    result, frame, page = execute(["".join(cell["source"]) for cell in cells])
    assert result._repr_html_().startswith("<table><caption>calibudget: 400 examples, floor 100, residual 200<")
    assert dict(frame["quota"]) == result.plan.quotas
    assert page.read_text(encoding="utf-8").count("This run verifies.") == 1
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == "quota"
    assert verify(result.directory).differences == ()


def test_a_plan_shows_its_numbers_and_escapes_its_labels(hostile_run: Path) -> None:
    plan: AllocationPlan = ALLOCATION.read(hostile_run / "allocation.json")
    shown = Page()
    shown.feed(plan._repr_html_())
    rows = {cells[0]: cells for _, cells in shown.tables["table 0"][1:]}
    assert set(rows) == set(plan.sources)
    assert LABEL in rows
    for label, row in plan.sources.items():
        assert rows[label][2:4] == [f"{row.quota:,}", f"{row.floor_quota:,}"]
        assert rows[label][6] == f"{row.pool_size:,}"

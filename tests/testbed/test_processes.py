"""A whole study on the tiny random model: the machinery, not the evidence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from testbed.grid import cells
from testbed.processes import Job, run_testbed
from testbed.protocol import read_protocol
from testbed.report import markdown
from testbed.results import RESULTS_NAME, Results

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tiny_protocol: Any, testbed_data: Any, tiny_directory: Path, tmp_path: Path) -> Any:
    return Job(
        protocol=tiny_protocol,
        data=testbed_data,
        model=str(tiny_directory),
        results=tmp_path / "results",
        device="cpu",
        execution={"device": "cpu"},
    )


def run(job: Any) -> Any:
    notes: list[Any] = []
    return run_testbed(job, note=notes.append), notes


def test_a_study_runs_resumes_and_says_what_came_out(job: Any) -> None:
    left, notes = run(job)
    assert left == 0, notes
    path = job.results / RESULTS_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    protocol = read_protocol(job.protocol)
    results = Results(path)
    found = {(cell["point"], cell["policy"], cell["seed"]): cell for cell in results.lines("cell")}
    assert len(found) == len(cells(protocol)) == 10

    # quotas are the policy's: they spend the budget, or what the warm-ups left of it, and equal ones are trained once
    for (point, policy, _), cell in found.items():
        spent = protocol.point(point).budget - (cell["warm_up_examples"] if policy == "charged" else 0)
        assert sum(cell["quotas"].values()) == spent
        assert min(cell["quotas"].values()) >= 4
    assert found["main", "equal", 1]["run"] == found["main", "even", 1]["run"]
    assert found["main", "equal", 1]["run"] != found["main", "equal", 2]["run"]
    for run_line in results.lines("run"):
        assert all(math.isfinite(task["nll"]) for task in run_line["tasks"].values())
        assert run_line["tasks"]["gsm_symbolic"]["items"] == 3
        assert len(run_line["right"]["chain_sum"]) == 2

    # nothing is done twice, and what a kill took away is done again to the same numbers
    _, again = run(job)
    assert [note for note in again if "NLL" in note] == []
    measured = {line["key"]: line["tasks"] for line in results.lines("run")}
    path.write_bytes(b"".join(lines[:-3]) + lines[-3][:40])
    assert run(job)[0] == 0
    assert {line["key"]: line["tasks"] for line in Results(path).lines("run")} == measured

    text = markdown(protocol, Results(path))
    assert "| calibudget | 2 |" in text
    assert "nan" not in text

    job.protocol.write_text(job.protocol.read_text(encoding="utf-8").replace("floor: 4", "floor: 5"), encoding="utf-8")
    with pytest.raises(ArtefactError, match="another protocol"):
        run(job)

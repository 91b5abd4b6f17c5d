"""A whole study on the tiny random model: the machinery, not the evidence."""

import math

import pytest

from calibudget.errors import ArtefactError
from calibudget.study.testbed.grid import cells
from calibudget.study.testbed.protocol import read_protocol
from calibudget.study.testbed.report import markdown
from calibudget.study.testbed.results import RESULTS_NAME, Results
from calibudget.study.testbed.running import Job, run_testbed

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tiny_protocol, testbed_data, tiny_directory, tmp_path):
    return Job(
        protocol=tiny_protocol,
        data=testbed_data,
        model=str(tiny_directory),
        results=tmp_path / "results",
        device="cpu",
        execution={"device": "cpu"},
    )


def run(job):
    notes = []
    return run_testbed(job, note=notes.append), notes


def test_a_study_runs_resumes_and_says_what_came_out(job):
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
        spent = protocol.point(point).budget - (cell["warm_up_examples"] if policy == "chosen-charged" else 0)
        assert sum(cell["quotas"].values()) == spent
        assert min(cell["quotas"].values()) >= 4
    assert found["main", "equal", 1]["run"] == found["main", "unimax", 1]["run"]
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


def test_nothing_begins_after_the_deadline(job):
    from dataclasses import replace

    left, notes = run(replace(job, deadline=1.0))
    assert left == 10
    assert notes == []

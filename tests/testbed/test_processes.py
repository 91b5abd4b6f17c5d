"""A whole study on the tiny random model: the machinery, not the evidence."""

from __future__ import annotations

import json
import math
import shutil
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


#: What makes the second protocol small enough for the tiny model; its policies, points and claims stay.
SMALL = {
    "model_sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53": "model_sha256: null",
    "rank: 32": "rank: 4",
    "epochs: 2": "epochs: 1",
    "max_length: 256": "max_length: 2048",
    "{per_source: 100, resamples: 200, max_new_tokens: 80}": "{per_source: 4, resamples: 20, max_new_tokens: 2}",
    "companion: 400": "companion: 4",
    "test_items: 300": "test_items: 3",
    "decoded: 200": "decoded: 2",
    "[50, 100, 200]": "[2, 4, 8]",
    "[25, 50, 100]": "[2, 3, 4]",
    "[50, 100]": "[2, 4]",
    "exposures: [24]": "exposures: [3]",
    "budget: 4000": "budget: 128",
    "floor: 200": "floor: 4",
    "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]": "[1]",
}


@pytest.mark.full
def test_every_policy_of_the_second_protocol_runs_and_its_claims_are_told(
    job: Any, second_data: Any, protocol_path: Path, tmp_path: Path
) -> None:
    from dataclasses import replace

    text = protocol_path.with_name("testbed-2.yaml").read_text(encoding="utf-8")
    for before, after in SMALL.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    small = tmp_path / "small.yaml"
    small.write_text(text, encoding="utf-8")
    long = shutil.copytree(job.model, tmp_path / "long")  # its tokenizer makes a token of nearly every character
    config = json.loads((long / "config.json").read_text())
    (long / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    left, notes = run(replace(job, protocol=small, data=second_data, model=str(long)))
    assert left == 0, notes
    protocol, results = read_protocol(small), Results(job.results / RESULTS_NAME)
    found = {(cell["policy"], cell["seed"]): cell for cell in results.lines("cell")}
    assert len(found) == 12
    for (policy, _), cell in found.items():
        charged = cell["warm_up_examples"] if policy == "learning-curve-charged" else 0
        assert sum(cell["quotas"].values()) == 128 - charged
    assert found["equal", 1]["run"] == found["unimax", 1]["run"]
    # 17 mixtures of 24, one of which has 6 more or 2 fewer of a source
    assert found["mixing-law", 1]["warm_up_examples"] == 24 + 8 * 30 + 8 * 22
    text = markdown(protocol, results)
    for policy in protocol.claims["confirm"]:
        assert f"### {policy} minus the others (confirmatory)" in text
    assert "from the limit" in text
    assert "fall per doubling that learning-curve measured" in text

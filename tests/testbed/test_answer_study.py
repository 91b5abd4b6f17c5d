"""A whole study whose endpoint is right answers, on the tiny random model: the machinery, not the evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.answers_report import answers_figures, answers_markdown
from testbed.candidates import POOLS
from testbed.data import generate
from testbed.grid import cells
from testbed.processes import Job, run_testbed
from testbed.protocol import read_protocol
from testbed.results import RESULTS_NAME, Results

pytestmark = pytest.mark.full

PROTOCOL = """\
name: tiny-answers
model_sha256: null
data_sha256: null
training: {rank: 4, scaling: 4.0, learning_rate: 0.005, epochs: 1, batch_size: 8, max_length: 2048}
calibration: {per_source: 4, resamples: 20, max_new_tokens: 2}
companion: 4
test_items: 3
decoded: 3
endpoint: accuracy
policies:
  equal: {rule: equal}
  floor-sqrt: {rule: floor-sqrt}
  pooled: {rule: pooled}
  calibudget: {rule: calibudget}
  calibudget-warm: {rule: calibudget, warm_up: 2}
  answers-whole: {rule: answers, exposures: [2, 4]}
  answers: {rule: answers, exposures: [2, 4], with_equal: 0.5}
  answers-charged: {rule: answers, exposures: [1, 2], checkpoints: true, charged: true, with_equal: 0.5}
  merging: {rule: merging, exposures: [4], evaluations: 10}
points:
  - {name: main, half: pilot-5, status: confirmatory, budget: 120, floor: 4, seeds: [1, 2], rotate_pools: true,
     policies: [equal, floor-sqrt, pooled, calibudget, calibudget-warm, answers-whole, answers, answers-charged,
                merging]}
claims: {main: {answers: [equal, floor-sqrt, pooled, calibudget, merging]}}
"""


def test_every_policy_runs_and_the_claims_are_told(tiny_directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    path = tmp_path / "protocol.yaml"
    path.write_text(PROTOCOL, encoding="utf-8")
    model = shutil.copytree(tiny_directory, tmp_path / "long")  # its tokenizer makes a token of nearly every character
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    generate(tmp_path / "data", ("pilot-5",))
    notes: list[Any] = []
    job = Job(
        protocol=path,
        data=tmp_path / "data",
        model=str(model),
        results=tmp_path / "results",
        device="cpu",
        execution={"device": "cpu", "batch_tokens": 8192},
    )
    assert run_testbed(job, note=notes.append) == 0, notes
    protocol, results = read_protocol(path), Results(tmp_path / "results" / RESULTS_NAME)
    found = {(cell["policy"], cell["seed"]): cell for cell in results.lines("cell")}
    assert len(found) == len(cells(protocol)) == 18
    for (policy, _), cell in found.items():
        assert sum(cell["quotas"].values()) == (120 - 16 if policy == "answers-charged" else 120)
        assert min(cell["quotas"].values()) >= 4

    # the same comparators cost the same: 6 examples a source, once, in the warm-ups; 4 in each of 8 experts, 3 times
    assert found["answers", 1]["warm_up_examples"] == 8 * 6
    assert found["merging", 1]["warm_up_examples"] == 8 * 4 * 3
    merged = next(line for line in results.lines("merging") if line["seed"] == 1)
    assert sum(merged["weights"].values()) == pytest.approx(1, abs=1e-5)
    assert len(merged["found"]) == 10

    # pools go round: square-root quotas order the families as their pools at that seed
    for seed in (1, 2):
        quotas = list(found["floor-sqrt", seed]["quotas"].values())
        sizes = [POOLS[(place + seed) % 8] for place in range(8)]
        assert sorted(range(8), key=quotas.__getitem__) == sorted(range(8), key=sizes.__getitem__)
    for run in results.lines("run"):
        assert all(0 <= own["probability"] <= 1 for own in run["answers"].values())

    text = answers_markdown(protocol, results)
    assert "### answers minus the others: not confirmed on this set" in text
    assert "nan" not in text
    assert b"points (right is better)" in answers_figures(protocol, results)["main-differences.svg"]

"""Scores made elsewhere, on the command line: `statistics`, `score --export`, `run` with several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.store.scores import read_scores_file
from tests.conftest import fruit_recipe

pytestmark = pytest.mark.filterwarnings("ignore:fewer than 30 calibration records")
LOGS = Path(__file__).parents[1] / "store" / "logs"
NLL, GENERATED = (next(LOGS.glob(f"samples_{task}_*")) for task in ("calib_nll", "calib_gen"))
INSPECT = next(LOGS.glob("*.eval"))
SIZES = ["--pool-sizes", "arc=900", "--pool-sizes", "boolq=400"]


def test_statistics_of_samples_and_logs_follow_their_verdicts(tmp_path: Path, calibudget: Any) -> None:
    """The means are those of the files' own rows, by plain arithmetic."""
    done = calibudget("statistics", NLL, *SIZES)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["error"], [row["pool_size"] for row in told["sources"].values()]) == ("nll", [900, 400])
    losses: dict[str, list[float]] = {"arc": [], "boolq": []}
    for line in map(json.loads, NLL.read_text().splitlines()):
        doc = line["doc"]
        losses[doc["source"]].append(-float(line["resps"][0][0][0]) / doc["response_tokens"])
    for source, row in told["sources"].items():
        assert row["mean_nll"] == pytest.approx(sum(losses[source]) / len(losses[source]))
    output = tmp_path / "statistics.json"
    for log, verdict, wrong in ((GENERATED, "exact_match,first", [1, 1]), (INSPECT, "includes", [0.5, 1])):
        done = calibudget("statistics", NLL, log, *SIZES, "--verdict", verdict, "--output", output)
        assert done.code == 0, done.err
        told = json.loads(output.read_bytes())
        assert [row["error_rate"] for row in told["sources"].values()] == wrong
        assert told["error"] == "nll+wrong"
    assert json.loads(calibudget("allocate", output, "--budget", 100, "--json").out)["budget"] == 100


def test_a_run_takes_several_files_that_name_the_exported_records(
    tmp_path: Path, calibudget: Any, tiny_directory: Path
) -> None:
    recipe = fruit_recipe(tmp_path, count=12, checked=True, model=str(tiny_directory), budget=8, floor=2)
    exported = tmp_path / "calibration.jsonl"
    assert calibudget("score", recipe, "--export", exported).code == 0
    records = [json.loads(line) for line in exported.read_text().splitlines()]
    losses = tmp_path / "losses.jsonl"
    losses.write_text("".join(json.dumps(one | {"logprob": -1.5 * n}) + "\n" for n, one in enumerate(records)))
    samples = [
        {
            "id": one["record_id"],
            "epoch": 1,
            "metadata": {"source": one["source"]},
            "output": {"completion": "neither"},
            "scores": {"lenient": {"value": "C"}, "strict": {"value": "IC"[number % 2]}},
        }
        for number, one in enumerate(records)
    ]
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"version": 2, "status": "success", "eval": {"task": "t"}, "samples": samples}))
    run_dir = tmp_path / "run"
    done = calibudget(
        "run", recipe, "--output-dir", run_dir, "--scores", losses, "--scores", log, "--verdict", "strict"
    )
    assert done.code == 0, done.err
    scores = {one.record_id: one for one in read_scores_file(run_dir / "scores.parquet").scores}
    for number, one in enumerate(records):
        assert scores[one["record_id"]].correct == bool(number % 2)
        assert scores[one["record_id"]].nll == 1.5 * number / one["response_tokens"]
    assert calibudget("verify", run_dir).code == 0
    refused = calibudget("run", recipe, "--output-dir", tmp_path / "two", "--scores", log, "--verdict", "strict")
    assert refused.code == 2
    assert "nll: is missing" in refused.err
    assert not (tmp_path / "two").exists()

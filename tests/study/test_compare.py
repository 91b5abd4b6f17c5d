"""`calibudget compare`: a tiny model trained and judged by a recipe's own held-out records, in one command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

from calibudget.errors import StudyError
from calibudget.evaluation.results import read_predictions
from calibudget.store.splits import read_splits
from calibudget.study.compare import comparison

OPTIONS = ("rank=2", "scaling=4", "batch_size=8", "epochs=1", "max_length=384", "device=cpu", "learning_rate=0.001")
HELD_OUT = "evaluation.per_source=5"


@pytest.fixture
def calibudget(calibudget: Any) -> Any:
    """Its exit code, output and messages."""
    return lambda *arguments: astuple(calibudget("compare", *arguments))


@pytest.fixture
def recipe(tmp_path: Path, tiny_directory: Path, study_writer: Callable[..., Path]) -> Path:
    path = study_writer(tmp_path / "small", model=str(tiny_directory), engine="local").with_name("recipe.yaml")
    path.write_text(path.read_text().replace("budget: 1\n", "budget: 24\nfloor: 10% of budget\n"))
    return path


def _values(directory: Path, policy: str, seed: int) -> Iterator[dict[str, float]]:
    """Of each source's held-out records the four measures, from a cell's predictions alone."""
    rows = read_predictions(directory / f"cells/recipe/recipe/{policy}/{seed}/evaluation-0/predictions.parquet")
    for task in sorted({row.task for row in rows}):
        own = [row for row in rows if row.task == task]
        nats = [(row.nll or 0.0) * (row.response_tokens or 0) for row in own]
        assert len(own) == 5
        yield {
            "right answers": fmean(row.verdict == "right" for row in own),
            "NLL a token": fmean(row.nll or 0.0 for row in own),
            "NLL an answer": fmean(nats),
            "answer probability": fmean(math.exp(-one) for one in nats),
        }


@pytest.mark.slow
def test_a_comparison_is_frozen_made_judged_and_gone_on_with(
    calibudget: Callable[..., Any], recipe: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "comparison"
    arguments = [recipe, HELD_OUT, "--policies", "calibudget,equal", "--seeds", "2"]
    arguments += ["--output-dir", directory, *(word for option in OPTIONS for word in ("--training", option))]
    code, out, _ = calibudget(*arguments, "--dry-run", "--json")
    told = json.loads(out)["backbones"]["recipe"]
    assert (code, told["cells"], told["left"], told["items"]) == (0, 4, 4, 4 * 15)
    assert told["hours"] > 0
    assert not directory.exists()

    code, out, err = calibudget(*arguments, "--json")
    assert code == 0, err
    assert "4 of 4 trainings left" in err
    found = json.loads(out)
    assert len(found["verdicts"]) == 4
    for one in found["verdicts"]:
        means = {
            policy: [fmean(row[one["endpoint"]] for row in _values(directory, policy, seed)) for seed in (42, 43)]
            for policy in ("calibudget", one["other"])
        }
        differences = [first - second for first, second in zip(*means.values(), strict=True)]
        assert one["difference"] == pytest.approx(fmean(differences), abs=1e-12)
        if len({round(each, 12) for each in differences}) > 1:
            interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
            assert one["interval"] == pytest.approx([interval.low, interval.high])
        assert one["primary"] == (one["endpoint"] == "right answers")
    run = directory / "cells/recipe/recipe/equal/42/run"
    assert "floor: 10% of budget" in (run / "recipe.resolved.yaml").read_text()
    for ids in read_splits(run / "splits.parquet").sources.values():
        assert not set(ids.evaluation) & {*ids.calibration, *ids.candidates}

    files = {path: path.stat().st_mtime_ns for path in directory.glob("cells/**/cell.json")}
    code, again, err = calibudget(*arguments)
    assert code == 0
    assert [one["words"] for one in found["verdicts"]] == again.splitlines()[:4]
    assert "0 of 4 trainings left" in err
    assert {path: path.stat().st_mtime_ns for path in directory.glob("cells/**/cell.json")} == files

    assert found["verdicts"][0]["words"].startswith("calibudget minus equal, right answers: ")
    assert calibudget(*arguments, "calibration.per_source=7")[0] == 1  # not what was frozen


@pytest.mark.parametrize(
    ("policies", "seeds", "overrides", "words"),
    [
        (["calibudget", "equal"], 2, [], r"holds no records out.*evaluation\.per_source=200"),
        (["calibudget"], 2, [HELD_OUT], "at least two to compare"),
        (["equal", "equal"], 2, [HELD_OUT], "each once"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    small: Path, policies: list[str], seeds: int, overrides: list[str], words: str
) -> None:
    with pytest.raises(StudyError, match=words):
        comparison(small.with_name("recipe.yaml"), policies, seeds, overrides=overrides)

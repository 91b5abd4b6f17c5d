# ruff: noqa: E501

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.evaluation.aggregates import PANELS, aggregate
from calibudget.evaluation.results import (
    EVALUATION,
    Evaluation,
    Prediction,
    read_predictions,
    task_result,
    write_predictions,
)
from calibudget.store.canonical import canonical_json

ROWS = [
    Prediction(
        task="b", item_id="2", text="x\u2028\0", prediction=None, gold="1", verdict="unparsable", reason="empty"
    ),
    Prediction(task="a", item_id="1", text="5", prediction="5", gold="5", verdict="right", nll=0.5, response_tokens=3),
    Prediction(task="a", item_id="0", text="", prediction=None, gold=None, verdict="timeout", reason="timeout: 30 s"),
]


def test_predictions_come_back_ordered_and_the_bytes_repeat(tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    write_predictions(one, ROWS)
    write_predictions(other, ROWS[::-1])
    assert one.read_bytes() == other.read_bytes()
    assert read_predictions(one) == (ROWS[2], ROWS[1], ROWS[0])


def test_a_spoilt_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(path, [replace(ROWS[0], verdict="perhaps")])  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match="row 1: verdict"):
        read_predictions(path)
    write_predictions(path, [replace(ROWS[1], nll=float("nan"))])
    with pytest.raises(ArtefactError, match="row 1: nll"):
        read_predictions(path)
    write_predictions(path, [ROWS[0], ROWS[0]])
    with pytest.raises(ArtefactError, match="twice"):
        read_predictions(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ArtefactError):
        read_predictions(path)


def row(verdict: str, count: int) -> list[Prediction]:
    return [replace(ROWS[1], verdict=verdict, nll=1.25)] * count  # type: ignore[arg-type]


def evaluation() -> Evaluation:
    evidence: dict[str, object] = {
        "subset": None, "items_sha256": "0" * 64, "left_out": 0, "files": (), "checker": {"check": "answer"}, "scorer": None,
    }  # fmt: skip
    right = task_result([*row("right", 1), *row("wrong", 3)], evidence=evidence, shared=["x"])
    waiting = task_result(row("deferred", 2), evidence=evidence)
    bare = Evaluation(
        model={"name": "m"}, tasks={}, panels=aggregate({}, {**PANELS, "Own": ("math", "mbpp")}),
        training_set={"file": "train.jsonl", "sha256": "1" * 64}, versions={"torch": "2"},
    )  # fmt: skip
    return bare.with_tasks({"math": right, "gsm8k": right, "humaneval": waiting, "mbpp": right})


def test_an_evaluation_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    path.write_bytes(canonical_json(evaluation().to_json()))
    again = EVALUATION.read(path)
    assert again.to_json() == evaluation().to_json()
    assert canonical_json(again.to_json()) == path.read_bytes()
    document = json.loads(path.read_bytes())
    assert document["panels"]["MathAvg"]["score"] == 0.25
    assert document["panels"]["Own"] == {
        "of": ["math", "mbpp"],
        "score": 0.25,
        "standard_error": pytest.approx(0.153093),
    }
    assert document["panels"]["CodeMacro"]["score"] is None  # one of its tasks waits for a sandbox
    assert set(document["panels"]) == {*PANELS, "Own"}


def test_an_edited_evaluation_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (lambda d: d["tasks"]["math"].update(right=2), "aren't those of its items"),
        (lambda d: d["panels"]["MathAvg"].update(score=0.9), "aren't those of its items"),
        (lambda d: d["panels"]["CodeMacro"].update(of=[]), r"evaluation\.json: .*CodeMacro"),
        (lambda d: d["tasks"]["math"].update(right=99), r"evaluation\.json: .*no more right than items"),
        (lambda d: d["tasks"]["math"].update(extra=1), "extra"),
        (lambda d: d["tasks"]["math"].pop("mean_nll"), "mean_nll"),
        (lambda d: d.update(schema="calibudget.evaluation/9"), "schema"),
        (lambda d: d.update(tasks=[]), "tasks"),
    ]
    for change, message in cases:
        with subtests.test(message=message):
            document = evaluation().to_json()
            change(document)
            path = tmp_path / "evaluation.json"
            path.write_bytes(canonical_json(document))
            with pytest.raises(ArtefactError, match=message):
                EVALUATION.read(path)

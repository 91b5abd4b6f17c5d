"""Evaluation splits in a run: what is written, what `verify` notices, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError, DataError, InputError, RecipeError
from calibudget.evaluation.results import read_predictions
from calibudget.keys import order_key
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate, rejudge
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.records import Record
from calibudget.sources.hygiene.near_duplicates import HeldOutWords
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import NearDuplicatesRule, SourceSpec
from calibudget.store.manifest import MANIFEST
from calibudget.store.splits import read_splits
from tests.pipeline.conftest import forge

HELD_OUT = "evaluation={per_source: 6}"


@pytest.fixture
def root(tmp_path: Path, held_out_run: Path) -> Path:
    shutil.copytree(held_out_run, tmp_path, dirs_exist_ok=True)
    return tmp_path


def rewrite_splits(directory: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    table = pq.read_table(directory / "splits.parquet")
    rows = table.to_pylist()
    change(rows)
    rows.sort(key=lambda row: (row["source"], row["role"], row["key"]))
    pq.write_table(pa.Table.from_pylist(rows, table.schema), directory / "splits.parquet")
    forge(directory)


def test_the_evidence_says_who_evaluates_and_verify_derives_it_again(root: Path) -> None:
    splits, manifest = read_splits(root / "run" / "splits.parquet"), MANIFEST.read(root / "run" / "manifest.json")
    rows = [json.loads(line) for line in (root / "run" / "held-out.jsonl").read_text().splitlines()]
    listed = [(label, one) for label, ids in splits.sources.items() for one in ids.evaluation]
    assert [(row["source"], row["record_id"]) for row in rows] == listed
    assert [len(ids.evaluation) for ids in splits.sources.values()] == [6, 6]
    assert [row.evaluation_size for row in manifest.sources.values()] == [6, 6]
    assert verify(root / "run").differences == ()
    assert verify(root / "run", data_dir=root / "data").differences == ()


def test_the_calibration_split_is_that_of_a_recipe_without_an_evaluation_split(root: Path) -> None:
    with_one, without = (prepare(load_recipe(root / "recipe.yaml", fields)) for fields in ([HELD_OUT], []))
    for label, split in with_one.splits.items():
        assert split.calibration == without.splits[label].calibration
        ids = {record.record_id for record in split.evaluation}
        assert set(split.candidate_ids) | ids == set(without.splits[label].candidate_ids)


def test_a_candidate_put_in_place_of_an_evaluation_record_is_noticed(root: Path) -> None:
    def swap(rows: list[dict[str, Any]]) -> None:
        """The last candidate under the key evaluates, and the first evaluation record may be drawn."""
        of = {
            role: [row for row in rows if (row["source"], row["role"]) == ("boolq", role)]
            for role in ("candidate", "evaluation")
        }
        other = max(of["candidate"], key=lambda row: order_key("evaluation", 42, "boolq", row["record_id"]))
        own = of["evaluation"][0]
        own["record_id"], other["record_id"] = other["record_id"], own["record_id"]
        own["key"] = order_key("evaluation", 42, "boolq", own["record_id"])
        other["key"] = order_key("selection", 42, "boolq", other["record_id"])

    rewrite_splits(root / "run", swap)
    found = {(one.file, one.expected) for one in verify(root / "run").differences}
    assert ("splits.parquet", "an evaluation record, by its key") in found


def test_a_record_that_one_source_evaluates_and_another_may_draw_is_noticed(root: Path) -> None:
    def lend(rows: list[dict[str, Any]]) -> None:
        own = next(row for row in rows if (row["source"], row["role"]) == ("boolq", "evaluation"))
        key = order_key("selection", 42, "piqa", own["record_id"])
        rows.append(own | {"source": "piqa", "role": "candidate", "key": key})

    rewrite_splits(root / "run", lend)
    assert any(one.expected == "a record that boolq evaluates" for one in verify(root / "run").differences)


def test_a_question_that_was_edited_is_noticed(root: Path) -> None:
    path = root / "run" / "held-out.jsonl"
    path.write_text(path.read_text().replace("question", "puzzle", 1))
    forge(root / "run")
    assert any(
        one.file == "held-out.jsonl" and one.field == "row 1: prompt[0].content"
        for one in verify(root / "run").differences
    )


def test_a_source_that_is_too_small_is_named_with_the_field_that_helps(make_recipe: Callable[..., Path]) -> None:
    with pytest.raises(
        DataError, match=r"'boolq': the evaluation split needs 26 .* only 25 .*`evaluation\.per_source`"
    ):
        prepare(load_recipe(make_recipe(), ["evaluation={per_source: 26}"]))


def test_earlier_rounds_and_an_evaluation_split_are_refused_together(make_recipe: Callable[..., Path]) -> None:
    with pytest.raises(RecipeError, match=r"can't go with `rounds`.*hygiene\.evaluation"):
        load_recipe(make_recipe(), [HELD_OUT, "rounds={previous: [run]}"])


def test_the_words_in_which_a_source_puts_its_questions_make_no_twins() -> None:
    form = "Please read the following customer message with care and choose the one team that should answer it: "

    make = RecordMaker(SourceSpec(label="s", path="rows.jsonl"))

    def record(text: str) -> Record:
        made = make({"instruction": form + text, "output": "billing"})
        assert made is not None
        return made

    subjects = [
        "invoice",
        "parcel",
        "login",
        "refund",
        "screen",
        "cable",
        "address",
        "delay",
        "plan",
        "coupon",
        "seat",
        "key",
    ]
    held_out = [record(f"my {one} from last week is wrong again and nobody at the desk answers") for one in subjects]
    words = HeldOutWords([held_out], NearDuplicatesRule())
    others = [record("how do I cancel"), record("my parcel never came, where is it now?")]
    assert not words.like(others).digests
    twin = record("my parcel from last week is wrong again and nobody at the desk answers!")
    found = words.like([twin])
    assert (len(found.digests), found.others) == (1, 1)


def test_held_out_records_are_measured_by_token_answer_and_right_answers(root: Path) -> None:
    asking = EvaluationRequest(tasks=("held-out",))
    found = evaluate(root / "run", asking)[""]
    assert list(found.tasks) == ["held-out.boolq", "held-out.piqa"]
    predictions = read_predictions(root / "run" / "predictions.parquet")
    for name, one in found.tasks.items():
        own = [row for row in predictions if row.task == name]
        totals = [(row.nll or 0.0) * (row.response_tokens or 0) for row in own]
        assert len(own) == 6
        assert one.mean_answer_nll == pytest.approx(math.fsum(totals) / 6, rel=1e-12)
        assert one.mean_answer_probability == pytest.approx(
            math.fsum(math.exp(-total) for total in totals) / 6, rel=1e-12
        )
        assert one.right == sum(row.verdict == "right" for row in own)
        assert (one.shared_with_training, one.shared_with_calibration) == ((), ())
    mean = found.panels["held-out"].score
    assert mean == pytest.approx(sum(one.score or 0.0 for one in found.tasks.values()) / 2)
    assert verify(root / "run").differences == ()
    assert rejudge(root / "run", asking).to_json() == found.to_json()
    assert evaluate(root / "run", asking, resume=True)[""].to_json() == found.to_json()
    with pytest.raises(ArtefactError, match="of other work"):
        evaluate(root / "run", EvaluationRequest(tasks=("held-out",), limit=3), resume=True)


@pytest.mark.parametrize("column", ["gold", "nll"])
def test_predictions_of_held_out_records_that_were_edited_are_noticed(root: Path, column: str) -> None:
    evaluate(root / "run", EvaluationRequest(tasks=("held-out",)))
    table = pq.read_table(root / "run" / "predictions.parquet")
    rows = table.to_pylist()
    rows[0][column] = {"true": "false", "false": "true"}[rows[0]["gold"]] if column == "gold" else 0.0
    pq.write_table(pa.Table.from_pylist(rows, table.schema), root / "run" / "predictions.parquet")
    forge(root / "run")
    fields = {one.field for one in verify(root / "run").differences}
    wanted = {"gold": "held-out.boolq: right answers", "nll": "tasks.held-out.boolq.mean_answer_nll"}[column]
    assert any(field.startswith(wanted) for field in fields)


def test_a_file_of_ones_own_is_a_task_with_and_without_answers_to_check(root: Path, tmp_path: Path) -> None:
    rows = [
        {"question": f"Is {n} even?", "reply": f"the correct answer is {str(n % 2 == 0).lower()}"} for n in range(5)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = "columns: {prompt: question, completion: reply}"
    tasks = (
        f"mine={{path: mine.jsonl, {columns}, answer: true_false}}",
        f"told={{path: mine.jsonl, {columns}}}",
    )
    found = evaluate(root / "run", EvaluationRequest(tasks=tasks, data_dir=tmp_path), output_dir=tmp_path / "out")[""]
    checked, unchecked = found.tasks["mine"], found.tasks["told"]
    assert checked.score is not None
    assert unchecked.score is None
    assert unchecked.verdicts == {"unchecked": 5}
    assert all(
        one.mean_answer_nll is not None and one.mean_answer_probability is not None for one in (checked, unchecked)
    )


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("mine", "say name=file for a task of your own"),
        ("held-out.boolq=rows.jsonl", "own evaluation split"),
        ("mine={path: rows.jsonl, preset: nothing}", "preset: 'nothing' is unknown"),
        ("mine={file: rows.jsonl}", "unknown field"),
    ],
)
def test_tasks_that_cannot_be_are_refused_by_name(root: Path, task: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        evaluate(root / "run", EvaluationRequest(tasks=(task,)))

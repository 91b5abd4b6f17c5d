from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError, RecipeError
from calibudget.records import Message
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source
from calibudget.tasks.answers import AnswerSpec

Write = Callable[..., Path]
Read = Callable[..., SourceRead]

ROWS = [{"prompt": f"Say {number}", "completion": f"It is {number}.", "n": number} for number in range(5)]
LABELS = AnswerSpec(kind="choice", labels=("a", "b"), field="gold")


def test_a_record_holds_text_answer_and_the_row_itself(write: Write, read: Read) -> None:
    row = {"question": " Is  it? ", "answer": "the correct answer is true\n", "extra": {"x": [1, None]}}
    write("rows.jsonl", [row])
    result = read(answer=AnswerSpec(kind="true_false"))
    (record,) = result.records
    assert record.source == "s"
    assert record.prompt == (Message(role="user", content="Is  it?"),)
    assert record.completion == "the correct answer is true"
    assert record.answer == "true"
    assert record.original == row
    assert record.record_id == hashlib.sha256(b'["Is it?","the correct answer is true"]').hexdigest()
    assert record.prompt_hash == hashlib.sha256(b"is it?").hexdigest()


def test_files_are_bound_as_they_lie(write: Write, read: Read) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        path = write(name, ROWS[:2] if name == "a.jsonl" else ROWS[2:])
    files = read("*.jsonl").files
    assert [file.name for file in files] == ["a.jsonl", "b.jsonl"]
    data = (path.parent / "a.jsonl").read_bytes()
    assert files[0].bytes == len(data)
    assert files[0].sha256 == hashlib.sha256(data).hexdigest()


def test_columns_map_names_and_leave_the_original_alone(write: Write, read: Read) -> None:
    row = {"problem": "p", "solution": "s", "output": "not this"}
    write("rows.jsonl", [row])
    (record,) = read(columns={"instruction": "problem", "response": "solution"}).records
    assert record.prompt[0].content == "p"
    assert record.completion == "s"
    assert record.original == row


def test_a_prompt_is_put_together_from_columns(write: Write, read: Read) -> None:
    path = write("rows.csv", [])
    path.write_text("question,a,b,key,year,note,instruction\nIs {a} it?,yes,no,B,2020,n,other\n", encoding="utf-8")
    answer = AnswerSpec(kind="choice", labels=("A", "B"), field="key")
    result = read(
        "rows.csv", prompt="{{{year}}} {question}\nA) {a}\nB) {b}", columns={"response": "key"}, answer=answer
    )
    (record,) = result.records
    assert record.prompt == (Message(role="user", content="{2020} Is {a} it?\nA) yes\nB) no"),)
    assert (record.completion, record.answer) == ("B", "B")
    assert tuple(result.tally.columns_not_used) == ("instruction", "note")
    with pytest.raises(DataError, match=r"rows.csv:2: the column 'c' \(for 'prompt'\) is missing; the record has q"):
        read("rows.csv", prompt="{question} {c}", columns={"response": "key"})
    path.write_text("q,a\nWhy?,1\nHow?,\n", encoding="utf-8")
    assert read("rows.csv", prompt="{q}", columns={"response": "a"}, on_error="skip").tally.skipped == 1
    with pytest.raises(DataError, match=r"rows.csv:3: .*'a'"):
        read("rows.csv", prompt="{q} {a}", columns={"response": "q"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "{q"}, "`prompt`: .*; a brace of the text itself is written twice, {{ or }}"),
        ({"prompt": "q}"}, "written twice"),
        ({"prompt": "{}"}, "the name of a column and nothing else"),
        ({"prompt": "{q:>9}"}, "the name of a column and nothing else"),
        ({"prompt": "{q!r}"}, "the name of a column and nothing else"),
        ({"prompt": "Say {{q}}"}, "names no column"),
        ({"prompt": "{q}", "preset": "boolq"}, "no place beside `preset`"),
        ({"prompt": "{q}", "format": "messages"}, "no place beside `format: messages`"),
        ({"prompt": "{q}", "columns": {"question": "q"}}, "`columns: {question: ...}` both say"),
    ],
)
def test_a_prompt_that_cant_be_put_together_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        SourceSpec(label="s", path="x", **fields)


def test_where_filters_and_counts(write: Write, read: Read) -> None:
    write("rows.jsonl", [{**row, "size": size} for row, size in zip(ROWS, ["xs", "xl", "xl", "l", 7], strict=True)])
    result = read(where={"size": "xl"})
    assert [record.original["n"] for record in result.records] == [1, 2]
    assert (result.tally.read, result.tally.filtered) == (5, 3)
    assert len(read(where={"size": ("l", "7")}).records) == 2
    with pytest.raises(DataError, match="the filter field 'sise' is missing"):
        read(where={"sise": "xl"})


def test_own_ids_are_taken_only_if_the_recipe_names_their_field(write: Write, read: Read) -> None:
    write("rows.jsonl", [{**row, "id": f"r{row['n']}", "qid": row["n"]} for row in ROWS])
    assert len(read().records[0].record_id) == 64
    assert [record.record_id for record in read(id_field="id").records] == ["r0", "r1", "r2", "r3", "r4"]
    assert read(id_field="qid").records[1].record_id == "1"
    with pytest.raises(DataError, match=r"rows\.jsonl:1: a record's own id \(field 'missing'\) must be"):
        read(id_field="missing")


def test_a_preset_reads_originals_and_converted_records_alike(write: Write, read: Read) -> None:
    text = (
        "Please choose the correct solution to the question: g\n\nSolution1: a\n\nSolution2: b\n\n"
        "Answer format: solution1/solution2"
    )
    write("rows.jsonl", [{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}])
    write(
        "rows2.jsonl",
        [{"instruction": text, "input": "", "output": "the correct answer is solution2", "answer": "solution2"}],
    )
    one, two = read(preset="piqa"), read("rows2.jsonl", preset="piqa")
    assert one.source.scan.spec.answers.labels == ("solution1", "solution2")
    assert one.records[0].record_id == two.records[0].record_id
    assert one.records[0].answer == two.records[0].answer == "solution2"


def test_a_record_can_be_made_again_from_its_original(write: Write, tmp_path: Path) -> None:
    write("rows.jsonl", [{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}])
    spec = SourceSpec(label="s", path="rows.jsonl", preset="piqa")
    (record,) = read_source(spec, tmp_path).records
    assert RecordMaker(spec)(record.original) == record


def test_a_record_without_gold_among_others_is_refused_by_line(write: Write, read: Read) -> None:
    write("rows.jsonl", [{**ROWS[0], "gold": "a"}, {**ROWS[1], "gold": None}])
    with pytest.raises(DataError, match=r"source 's': rows\.jsonl:2: the answer field 'gold' is missing or null"):
        read(answer=LABELS)

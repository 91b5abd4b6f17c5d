import json
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.store import plain_json, read_train, write_train

ORIGINAL = {"z": 1, "a": None, "n": 2**60 + 1, "f": 0.1, "nested": {"list": [1, "é", {"b": True, "a": []}]}}


def make_row(number=1, **more):
    return {
        "source": "boolq",
        "record_id": f"id-{number}",
        "role": "source",
        "prompt": "question",
        "completion": "answer\n",
        "original": ORIGINAL,
    } | more


def make_turns(number=1, **more):
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "é"}]
    row = make_row(number, **{"messages": turns} | more)
    return {name: value for name, value in row.items() if name not in ("prompt", "completion")}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(("layout", "make"), [("completion", make_row), ("messages", make_turns)])
def test_rows_come_back_with_their_originals_untouched(tmp_path, suffix, layout, make):
    rows = [make(1), make(2, original={}), make(3, role="companion", source="companion")]
    path = tmp_path / f"train.{suffix}"
    assert write_train(path, iter(rows), layout=layout) == 3
    again = list(read_train(path))
    assert again == rows
    assert list(again[0]["original"]) == list(ORIGINAL)
    first = path.read_bytes()
    write_train(path, iter(rows), layout=layout)
    assert path.read_bytes() == first


def test_json_lines_are_compact_and_keep_characters(tmp_path):
    write_train(tmp_path / "train.jsonl", [make_row(original={"é": "ü\u2028", "n": None})], layout="completion")
    assert (tmp_path / "train.jsonl").read_bytes() == (
        '{"source":"boolq","record_id":"id-1","role":"source","prompt":"question","completion":"answer\\n",'
        '"original":{"é":"ü\u2028","n":null}}\n'
    ).encode()


def test_the_parquet_schema_doesnt_depend_on_the_data(tmp_path):
    rows = [make_row(1, original={"input": None}), make_row(2, original={"input": "text"})]
    schemas = []
    for name, some in (("null", rows[:1]), ("text", rows[1:]), ("both", rows), ("none", [])):
        write_train(tmp_path / f"{name}.parquet", some, layout="completion")
        schemas.append(pq.read_schema(tmp_path / f"{name}.parquet"))
        assert list(read_train(tmp_path / f"{name}.parquet")) == some
    assert all(schema.equals(schemas[0]) for schema in schemas)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_null_first_and_mixed_originals_load_back_equal_through_datasets(tmp_path, monkeypatch, suffix):
    # huggingface/datasets #7222: a column that begins with nulls fixed the wrong type.
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    rows = [make_row(i, source="a", original={"input": None, "label": i}) for i in range(50)]
    rows += [make_row(i, source="b", original={"input": "text", "label": "yes"}) for i in range(50)]
    path = tmp_path / f"train.{suffix}"
    write_train(path, rows, layout="completion")
    builder = "json" if suffix == "jsonl" else "parquet"
    loaded = datasets.load_dataset(builder, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    found = [dict(row) for row in loaded]
    if suffix == "parquet":
        found = [row | {"original": json.loads(row["original"])} for row in found]
    assert found == rows


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), None),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([np.nan]), [None]),
        ((1, 2), [1, 2]),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (Decimal("1.10"), "1.10"),
        (b"\x00\xff", "AP8="),
        ({"a": [float("nan")]}, {"a": [None]}),
    ],
)
def test_what_json_cant_say_is_written_as_the_formats_page_says(tmp_path, value, plain):
    assert plain_json(value) == plain
    write_train(tmp_path / "train.jsonl", [make_row(original={"x": value})], layout="completion")
    assert next(read_train(tmp_path / "train.jsonl"))["original"] == {"x": plain}


def endless():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("inf"), "an infinity has no JSON form"),
        ({1: "x"}, "the key 1 is no string"),
        (object(), "type object has no JSON form"),
        (endless(), "recursion"),
        ("\ud800", "surrogate"),
    ],
)
def test_originals_without_a_form_are_refused_by_record_and_nothing_is_written(tmp_path, suffix, value, said):
    with pytest.raises(InputError, match="boolq: record id-2: ") as caught:
        write_train(
            tmp_path / f"train.{suffix}", [make_row(1), make_row(2, original={"x": value})], layout="completion"
        )
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not valid JSON"),
        (make_row(role="test"), "line 2: role: must be 'source' or 'companion'"),
        (make_row(original=[]), "line 2: original: must be an object"),
        (make_row(prompt=None), "line 2: prompt: must be a string"),
        (make_row(extra=1), "line 2: extra: is not a field"),
        (make_row(messages=[]), "line 2: "),
        (make_turns(messages=[{"role": "user"}]), "line 2: messages[0].content: is missing"),
        (make_turns(messages=["hi"]), "line 2: messages[0]: must be an object"),
    ],
)
def test_faults_of_a_train_set_are_named_by_line(tmp_path, line, said):
    text = line if isinstance(line, str) else json.dumps(line)
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(make_row())}\n{text}\n")
    with pytest.raises(ArtefactError, match=r"^train\.jsonl: ") as caught:
        list(read_train(tmp_path / "train.jsonl"))
    assert said in str(caught.value)


def test_a_cut_line_is_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps(make_row()))
    with pytest.raises(ArtefactError, match="line 1: is cut short"):
        list(read_train(tmp_path / "train.jsonl"))


def test_a_parquet_file_of_other_columns_is_refused(tmp_path):
    write_train(tmp_path / "train.parquet", [make_row()], layout="completion")
    table = pq.read_table(tmp_path / "train.parquet")
    pq.write_table(table.drop_columns("prompt"), tmp_path / "train.parquet")
    with pytest.raises(ArtefactError, match="columns aren't those of a train set"):
        list(read_train(tmp_path / "train.parquet"))

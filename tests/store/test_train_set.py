from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.store import train_set
from calibudget.store.canonical import plain_json
from calibudget.store.train_set import copy_train, read_train, train_files, write_train

ORIGINAL = {"z": 1, "a": None, "n": 2**60 + 1, "f": 0.1, "nested": {"list": [1, "é", {"b": True, "a": []}]}}


def make_row(number: int = 1, **more: Any) -> Any:
    return {
        "source": "boolq",
        "record_id": f"id-{number}",
        "role": "source",
        "prompt": "question",
        "completion": "answer\n",
        "original": ORIGINAL,
    } | more


def make_turns(number: int = 1, **more: Any) -> Any:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "é"}]
    row = make_row(number, **{"messages": turns} | more)
    return {name: value for name, value in row.items() if name not in ("prompt", "completion")}


def make_parts(number: int = 1, **more: Any) -> Any:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    return make_row(number, prompt=prompt, completion=[{"role": "assistant", "content": "é"}], **more)


CALL = {"id": "x", "function": {"name": "f", "arguments": {"n": 2**60 + 1, "list": [1, "a", None], "z": {}}}}


def make_tool_turns(number: int = 1, **more: Any) -> Any:
    """Every second row uses tools, the first doesn't."""
    if number % 2:
        return make_turns(number, **more)
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "x", "name": "f"},
        {"role": "assistant", "content": "é"},
    ]
    return make_turns(
        number, messages=turns, tools=[{"function": {"name": "f", "parameters": {"b": 1, "a": None}}}], **more
    )


SUFFIXES = ["jsonl", "parquet", "dataset"]
LAYOUTS: list[Any] = [
    ("completion", make_row, False),
    ("rendered", make_row, False),
    ("messages", make_turns, False),
    ("turns", make_parts, False),
    ("messages", make_tool_turns, True),
]


def digests(root: Path) -> Any:
    return {path.name: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("layout", "make", "tools"), LAYOUTS)
def test_rows_come_back_with_their_originals_untouched(
    tmp_path: Path, suffix: Any, layout: Any, make: Any, tools: Any
) -> None:
    rows = [make(1), make(2, original={}), make(3, role="companion", source="companion")]
    path = tmp_path / f"train.{suffix}"
    assert write_train(path, iter(rows), layout=layout, tools=tools) == 3
    again = list(read_train(path))
    assert again == rows
    assert list(again[0]["original"]) == list(ORIGINAL)  # type: ignore[call-overload]
    first = digests(tmp_path)
    assert [name for name in train_files(f"train.{suffix}") if not (tmp_path / name).is_file()] == []
    assert len(first) == len(train_files(f"train.{suffix}"))
    write_train(path, iter(rows), layout=layout, tools=tools)
    assert digests(tmp_path) == first


def test_columns_dont_depend_on_which_rows_come_first(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for layout, make, tools in LAYOUTS:
        with subtests.test(layout=layout):
            parquet, arrow = set(), set()
            for name, rows in (("one", [make(1)]), ("other", [make(2)]), ("none", [])):
                write_train(tmp_path / f"{name}.parquet", rows, layout=layout, tools=tools)
                write_train(tmp_path / f"{name}.dataset", rows, layout=layout, tools=tools)
                parquet.add(pq.read_schema(tmp_path / f"{name}.parquet").to_string())
                with pa.ipc.open_stream(tmp_path / f"{name}.dataset" / "data-00000-of-00001.arrow") as stream:
                    arrow.add(stream.schema.to_string())
                assert list(read_train(tmp_path / f"{name}.dataset")) == rows
            assert len(parquet) == len(arrow) == 1


@pytest.mark.parametrize("suffix", ["parquet", "dataset"])
def test_long_rows_are_written_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(train_set, "_CHARACTERS", 1000)
    sizes = []
    honest = train_set._batch
    monkeypatch.setattr(train_set, "_batch", lambda chunk, schema: sizes.append(len(chunk)) or honest(chunk, schema))  # type: ignore[func-returns-value]
    rows = [make_row(i, original={"x": "y" * (900 if i % 3 else 2000)}) for i in range(10)]
    write_train(tmp_path / f"train.{suffix}", iter(rows), layout="completion")
    assert max(sizes) == 2
    assert list(read_train(tmp_path / f"train.{suffix}")) == rows
    sizes.clear()  # a batch ends with the row by which it has the 1000 characters
    lengths = [500, 499, 1000, 500, 500, 500, 499]
    rows = [make_row(i, original={"x": "y" * (length - len('{"x":""}'))}) for i, length in enumerate(lengths)]
    write_train(tmp_path / f"train.{suffix}", iter(rows), layout="completion")
    assert sizes == [3, 2, 2]
    write_train(tmp_path / f"train.{suffix}", [*rows[:6], rows[6] | {"role": "test"}], layout="completion")
    with pytest.raises(ArtefactError, match=rf"^train\.{suffix}, row 7: role: must be 'source' or 'companion'"):
        list(read_train(tmp_path / f"train.{suffix}"))


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "make", "tools"), LAYOUTS)
def test_datasets_loads_the_directory_as_one_that_it_saved(tmp_path: Path, layout: Any, make: Any, tools: Any) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [make(number) for number in range(1, 40)]
    write_train(tmp_path / "train.dataset", iter(rows), layout=layout, tools=tools)
    write_train(tmp_path / "other.dataset", iter(rows[1:]), layout=layout, tools=tools)
    loaded, other = (datasets.load_from_disk(str(tmp_path / f"{name}.dataset")) for name in ("train", "other"))
    assert loaded.split == "train"
    assert len(loaded) == 39
    assert loaded["record_id"][:] == [row["record_id"] for row in rows]
    assert json.loads(loaded[5]["original"]) == ORIGINAL
    column = loaded.column_names[3]
    text = loaded[0][column]
    assert (text if isinstance(text, str) else text[0]["content"]) in ("question", "s", "hi")
    assert loaded._fingerprint != other._fingerprint
    if tools:
        assert json.loads(loaded[1]["messages"][1]["tool_calls"]) == [CALL]
        assert loaded[0]["tools"] is None


def test_json_lines_are_compact_and_keep_characters(tmp_path: Path) -> None:
    write_train(tmp_path / "train.jsonl", [make_row(original={"é": "ü\u2028", "n": None})], layout="completion")
    assert (tmp_path / "train.jsonl").read_bytes() == (
        '{"source":"boolq","record_id":"id-1","role":"source","prompt":"question","completion":"answer\\n",'
        '"original":"{\\"é\\":\\"ü\u2028\\",\\"n\\":null}"}\n'
    ).encode()


def _datasets(path: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache")
    ).to_list()


def _polars(path: Any) -> Any:
    return pytest.importorskip("polars").read_ndjson(path).to_dicts()


def _pandas(path: Any) -> Any:
    frame = pytest.importorskip("pandas").read_json(path, lines=True, dtype=False)
    return [{key: value for key, value in row.items() if value == value} for row in frame.to_dict("records")]


def _duckdb(path: Any) -> Any:
    table = pytest.importorskip("duckdb").sql(f"select * from read_ndjson('{path}')")  # noqa: S608 - a path of pytest's
    return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("read", [_datasets, _polars, _pandas, _duckdb])
@pytest.mark.parametrize(("layout", "make", "tools"), LAYOUTS)
def test_every_reader_has_one_schema_for_all_sources(
    tmp_path: Path, read: Any, layout: Any, make: Any, tools: Any
) -> None:
    # huggingface/datasets #7222: a column that begins with nulls fixed the wrong type; fields that change theirs, too.
    originals = ({"input": None, "label": 1}, {"input": "text", "label": "yes", "more": [{"a": 1}]})
    rows = [make(number, original=originals[number >= 50]) for number in range(100)]
    path = tmp_path / "train.jsonl"
    write_train(path, rows, layout=layout, tools=tools)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert _without_nulls(read(path)) == _without_nulls(lines)
    assert [json.loads(line["original"]) for line in lines] == [row["original"] for row in rows]


def test_what_json_cant_say_is_written_as_the_formats_page_says(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for value, plain in [
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
    ]:
        with subtests.test(plain=plain):
            assert plain_json(value) == plain
            write_train(tmp_path / "train.jsonl", [make_row(original={"x": value})], layout="completion")
            assert next(read_train(tmp_path / "train.jsonl"))["original"] == {"x": plain}


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("suffix", SUFFIXES)
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
def test_originals_without_a_form_are_refused_by_record_and_nothing_is_written(
    tmp_path: Path, suffix: Any, value: Any, said: str
) -> None:
    with pytest.raises(InputError, match="source 'boolq', record id-2: ") as caught:
        write_train(
            tmp_path / f"train.{suffix}", [make_row(1), make_row(2, original={"x": value})], layout="completion"
        )
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_faults_of_a_train_set_are_named_by_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for line, said in [
        ("{", ":2: not valid JSON"),
        (make_row(role="test"), ":2: role: must be 'source' or 'companion'"),
        (make_row(original=[]), ":2: original: must be text"),
        (make_row(original="[]"), ":2: original: must be the text of an object"),
        (make_row(original="{"), ":2: "),
        (make_row(prompt=None), ":2: prompt: must be text"),
        (make_row(extra=1), ":2: extra: is not a field"),
        (make_row(messages=[]), ":2: "),
        (make_turns(messages=[{"role": "user"}]), ":2: messages[0].content: is missing"),
        (make_turns(messages=["hi"]), ":2: messages[0]: must be an object"),
    ]:
        with subtests.test(line=line):
            given = line if isinstance(line, str) or line["original"] != ORIGINAL else line | {"original": "{}"}
            text = given if isinstance(given, str) else json.dumps(given)
            (tmp_path / "train.jsonl").write_text(f"{json.dumps(make_row(original='{}'))}\n{text}\n")
            with pytest.raises(ArtefactError, match=r"^train\.jsonl:") as caught:
                list(read_train(tmp_path / "train.jsonl"))
            assert said in str(caught.value)


def test_a_parquet_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path / "train.parquet", [make_row()], layout="completion")
    table = pq.read_table(tmp_path / "train.parquet")
    pq.write_table(table.drop_columns("prompt"), tmp_path / "train.parquet")
    with pytest.raises(ArtefactError, match="columns aren't those of a train set"):
        list(read_train(tmp_path / "train.parquet"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_copy_is_the_directory_that_would_have_been_written(
    tmp_path: Path, suffix: str, subtests: pytest.Subtests
) -> None:
    called = [{"role": "assistant", "content": "", "tool_calls": [CALL]}]  # three fields, and no tools beside them
    more: list[Any] = [
        ("messages", lambda number: make_turns(number, messages=called), True),
        ("turns", lambda number: make_parts(number) | {"prompt": called}, True),
        ("messages", lambda number: make_turns(number, tools=[{"name": "f"}]), True),
    ]
    for number, (layout, make, tools) in enumerate([*LAYOUTS, *more]):
        with subtests.test(layout=layout, number=number):
            rows = [make(1), make(2)]
            source, straight = tmp_path / f"{number}.{suffix}", tmp_path / f"straight-{number}.dataset"
            write_train(source, rows, layout=layout, tools=tools)
            write_train(straight, rows, layout=layout, tools=tools)
            assert copy_train(source, tmp_path / f"copy-{number}.dataset") == 2
            assert digests(tmp_path / f"copy-{number}.dataset") == digests(straight)
            arrow = (straight / "data-00000-of-00001.arrow").read_bytes()
            assert json.loads((straight / "state.json").read_bytes()) == {
                "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
                "_fingerprint": hashlib.sha256(arrow).hexdigest()[:16],
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": "train",
            }
            assert json.loads((straight / "dataset_info.json").read_bytes()) == {}
    write_train(tmp_path / f"none.{suffix}", [], layout="completion")
    assert copy_train(tmp_path / f"none.{suffix}", tmp_path / "none-copy.dataset") == 0


def test_lines_of_earlier_versions_hold_objects_and_cut_or_damaged_files_are_named(tmp_path: Path) -> None:
    rows = [make_tool_turns(1), make_tool_turns(2, original={})]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_train(path)) == rows
    path.write_text(path.read_text()[:-1])
    with pytest.raises(ArtefactError, match=r"^train\.jsonl:2: is cut short$"):
        list(read_train(path))
    turn = {"role": "user", "content": "x"}
    for prompt, fault in (
        (["x"], r"prompt\[0\]: must be an object, not 'x'"),
        ([turn, None], r"prompt\[1\]: must be an object, not None"),
        ([{**turn, "more": 1}], r"prompt\[0\]\.more: is not a field"),
        ("x", "completion: must be text"),
    ):
        path.write_text(json.dumps(make_parts() | {"original": {}, "prompt": prompt}) + "\n")
        with pytest.raises(ArtefactError, match=rf"^train\.jsonl:1: {fault}"):
            list(read_train(path))
    write_train(tmp_path / "train.dataset", [make_row()], layout="completion")
    arrow = tmp_path / "train.dataset" / "data-00000-of-00001.arrow"
    arrow.write_bytes(arrow.read_bytes().replace(b"question", b"\xff" * 8))
    with pytest.raises(ArtefactError, match=r"^train\.dataset/data-00000-of-00001\.arrow: can't be read: .*UTF-?8"):
        list(read_train(tmp_path / "train.dataset"))
    arrow.unlink()
    for missing in (tmp_path / "train.dataset", tmp_path / "none.jsonl"):
        with pytest.raises(ArtefactError, match=r"can't be read: (\[Errno 2\] )?No such file or directory"):
            list(read_train(missing))
    with arrow.open("wb") as handle, pa.ipc.new_stream(handle, pa.schema([("x", pa.int8())])):
        pass
    with pytest.raises(ArtefactError, match=r"^train\.dataset/data-.*\.arrow: the columns aren't those of a train set"):
        list(read_train(tmp_path / "train.dataset"))

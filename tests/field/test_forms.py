"""Forms that files have, and values that filters compare: bad bytes, unnamed columns, wrapped rows, arrays, nulls."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import DataError, RecipeError
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source

ROWS: list[dict[str, object]] = [{"instruction": f"q{number}", "output": f"a{number}"} for number in range(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def read(folder: Path, name: str, data: bytes | str | None = None, **spec: object) -> SourceRead:
    if data is not None:
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_source(SourceSpec(label="s", path=name, **spec), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stated", "wanted", "passes"),
    [
        ("true", True, True), ("True", True, True), ("false", True, False), (True, "true", True), (True, True, True),
        ("1", 1, True), ("1.0", 1, True), (1.0, 1, True), (1, "1.0", True), ("1e0", 1, True), (2, (1, 2), True),
        (1, True, False), ("1", True, False), (0, False, False), (None, "None", False), (None, "", False),
        ("xl", "xl", True), ("XL", "xl", False), ("1.10", "1.1", False), ("007", 7, False), (" 1", 1, False),
        (["x"], "['x']", False), ({}, "{}", False), (10**25, 1, False), ("", "", True),
    ],
)  # fmt: skip
def test_filters_compare_values(tmp_path: Path, stated: object, wanted: object, passes: bool) -> None:
    rows = [ROWS[0] | {"x": stated}, ROWS[1] | {"x": wanted[0] if isinstance(wanted, tuple) else wanted}]
    found = read(tmp_path, "r.jsonl", "".join(json.dumps(row) + "\n" for row in rows), where={"x": wanted})
    assert found.tally.filtered == (0 if passes else 1)


def test_a_bad_byte_in_a_csv_names_its_line_and_can_be_skipped(tmp_path: Path) -> None:
    lines = [b"instruction,output", *(f"question {n},answer {n}".encode() for n in range(200))]
    lines[151] = b"caf\xe9,answer"
    with pytest.raises(DataError, match=r"r\.csv:152: invalid UTF-8 \(the byte 0xe9\)"):
        read(tmp_path, "r.csv", b"\n".join(lines))
    found = read(tmp_path, "r.csv", on_error="skip")
    assert (len(found.records), found.tally.skipped) == (199, 1)
    with pytest.raises(DataError, match=r"h\.csv:1: invalid UTF-8"):
        read(tmp_path, "h.csv", b"instruction,outp\xfft\nq,a\n", on_error="skip")


@pytest.mark.parametrize("head", [",instruction,output", "instruction,output,", "Unnamed: 0,instruction,output"])
def test_an_unnamed_index_column_is_read_and_not_used(tmp_path: Path, head: str) -> None:
    cells = "q,a,0" if head.endswith(",") else "0,q,a"
    found = read(tmp_path, "r.csv", f"{head}\n{cells}\n")
    assert found.records[0].completion == "a"
    assert tuple(found.tally.columns_not_used) == (("Unnamed: 0",) if "Unnamed" in head else ("",))


@pytest.mark.parametrize("name", ["r.jsonl", "r.json.gz"])
@pytest.mark.parametrize(
    "text",
    [json.dumps(ROWS), json.dumps(ROWS, indent=2), "\ufeff\n  " + json.dumps(ROWS) + "\n\n", LINES, "\n\n" + LINES],
)
def test_arrays_and_lines_are_told_apart_whatever_the_name(tmp_path: Path, name: str, text: str) -> None:
    data = text.encode()
    found = read(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    assert [record.original for record in found.records] == ROWS


def test_a_bad_item_of_an_array_is_named_under_any_ending(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.jsonl, item 2: no response"):
        read(tmp_path, "r.jsonl", json.dumps([ROWS[0], {"instruction": "q"}]))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["r.json", "r.jsonl"])
def test_an_object_that_wraps_its_rows_says_so_and_can_be_read(tmp_path: Path, name: str, indent: int | None) -> None:
    text = json.dumps({"version": "1", "data": ROWS}, indent=indent)
    with pytest.raises(DataError, match=r"version, data.*`rows: data`"):
        read(tmp_path, name, text)
    assert [record.original for record in read(tmp_path, name, rows="data").records] == ROWS
    with pytest.raises(DataError, match=r"`rows: nothing` names no list of it, since it has the fields version, data"):
        read(tmp_path, name, rows="nothing")
    bad = json.dumps({"data": [ROWS[0], {"instruction": "q"}]}, indent=indent)
    with pytest.raises(DataError, match=r", item 2: no response"):
        read(tmp_path, name, bad, rows="data")


def test_rows_may_lie_deeper_and_one_object_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"`rows: train\.rows`"):
        read(tmp_path, "r.json", json.dumps({"train": {"rows": ROWS}}, indent=1))
    assert len(read(tmp_path, "r.json", rows="train.rows").records) == 3
    with pytest.raises(DataError, match=r"is one JSON object with the fields instruction, output.*a row in one line"):
        read(tmp_path, "r.json", json.dumps(ROWS[0], indent=1))


def test_rows_belong_to_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.csv: is no JSON file, so `rows: data` has no place"):
        read(tmp_path, "r.csv", "instruction,output\nq,a\n", rows="data")


def test_columns_that_padding_filled_with_null_count_as_absent(tmp_path: Path) -> None:
    rows = [
        {"messages": None, "prompt": "p", "completion": "c"},
        {"messages": [{"role": "user", "content": "q", "tool_calls": None}, {"role": "assistant", "content": "a"}],
         "prompt": None, "completion": None},
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    assert [record.completion for record in read(tmp_path, "r.parquet").records] == ["c", "a"]


def test_an_integer_of_too_many_digits_in_the_first_row_names_its_line(tmp_path: Path) -> None:
    rows = [f'{{"prompt": "a?", "completion": "b", "n": {"9" * 5000}}}', '{"prompt": "c?", "completion": "d"}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1: "):
        read_source(SourceSpec(label="a", path="a.jsonl"), tmp_path)
    read = read_source(SourceSpec(label="a", path="a.jsonl", on_error="skip"), tmp_path)
    assert (len(read.records), read.tally.skipped) == (1, 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "x.csv",
            "prompt;completion\nq;a\n",
            r"x\.csv:1: its cells seem to be parted by ';', not by ',';",
        ),
        ("x.csv", "prompt\tcompletion\nq\ta\n", r"parted by '\\t', not by ','; name the file \.tsv"),
        ("x.tsv", "prompt,completion\nq,a\n", r"parted by ',', not by '\\t'; name the file \.csv"),
    ],
)
def test_other_delimiters_and_encodings_are_named(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        read_source(SourceSpec(label="s", path=name), tmp_path)


def test_spaces_round_the_cells_of_a_csv_are_no_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('prompt, completion\nq, "a, b"\n')
    (record,) = read_source(SourceSpec(label="s", path="x.csv"), tmp_path).records
    assert record.completion == "a, b"


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", ["x.csv", "x.json"])
def test_utf_16_is_named_compressed_or_not(tmp_path: Path, name: str, ending: str) -> None:
    text = "prompt,completion\nq,a\n" if name == "x.csv" else LINES
    data = text.encode("utf-16")
    with pytest.raises(DataError, match="is UTF-16; save the file as UTF-8"):
        read(tmp_path, name + ending, gzip.compress(data) if ending else data)


PRETTY = "\n".join(json.dumps(row, indent=1) for row in ROWS)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", PRETTY, r"holds JSON objects over several lines each; write each into one line"),
        ("x.json", PRETTY.replace("}\n{", "},\n{"), r"holds JSON objects over several lines each"),
        ("x.json", json.dumps(ROWS[0] | {"tags": ["t"]}, indent=1), r"rows are expected; write a row in one line"),
        (
            "x.json",
            json.dumps({"messages": [{"role": "user"}]}, indent=1),
            r"are expected; write a row in one line \(`jq",
        ),
        ("x.json", json.dumps({"instruction": ["q"], "output": ["a"]}, indent=1), "its lists seem to be columns"),
        ("x.json", json.dumps({"train": ROWS, "test": ROWS}, indent=1), r"as in `rows: train`"),
        ("x.json", json.dumps({"test": ROWS, "train": ROWS}), r"or `rows: train`"),
        ("x.jsonl.gz", "", "the compressed file is cut short"),
        ("x.jsonl.zst", "", "the compressed file is cut short"),
        ("x.jsonl", "null", "a row must be an object, not null"),
        (
            "x.jsonl",
            '{"prompt": [{"role": "user", "content": "q"}], "chosen": "a"}',
            r"`columns: \{completion: chosen\}`",
        ),
        ("x.jsonl", '{"task_id": "HumanEval/0", "prompt": "q"}', r"`columns: \{completion: FIELD\}`"),
        ("x.jsonl", '{"prompt": "q", "chosen": "a", "rejected": "b"}', r"`columns: \{completion: chosen\}`"),
        (
            "x.jsonl",
            '{"prompt": "q"}',
            r"say which holds it \(`columns: \{completion: FIELD\}`\), or leave such rows out",
        ),
        ("x.jsonl", '{"prompt": null, "completion": "a"}', "no prompt: none of the fields"),
        ("x.jsonl", '{"question": "q", "choices": ["x"], "answer": "a"}', r"a list; .*`columns: \{choices: null\}`"),
        ("x.csv", "prompt,completion\nq\n", "stands in double quotes"),
        ("x.jsonl", "", r"no records in x\.jsonl \(0 rows read.*name files that hold rows"),
    ],
)
def test_a_refusal_says_what_to_do(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, text)


def test_a_source_of_no_records_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`where` names values that no row has"):
        read(tmp_path, "x.jsonl", LINES, where={"output": "none"})
    with pytest.raises(DataError, match=r"the first one skipped: y\.jsonl:1: no response"):
        read(tmp_path, "y.jsonl", '{"prompt": "q"}\n', on_error="skip")
    (tmp_path / ".a.jsonl").write_text(LINES)
    with pytest.raises(DataError, match="a glob finds no hidden file, so name those one by one"):
        read(tmp_path, ".a*.jsonl")
    assert read(tmp_path, ".a.jsonl").tally.read == 3


def test_a_recipe_that_reads_nothing_by_a_field_is_refused() -> None:
    with pytest.raises(
        RecipeError, match=r"`columns: \{promt: \.\.\.\}` gives a field that nothing reads.*did you mean 'prompt'"
    ):
        SourceSpec(label="s", path="x.jsonl", columns={"promt": "q"})
    assert SourceSpec(label="s", path="x.jsonl", columns={"mine": "q"}, where={"mine": 1}).columns
    with pytest.raises(RecipeError, match="takes parts of splits, which only a `hub` data set has"):
        SourceSpec(label="s", path="x.jsonl", split="train[:50%]")

from __future__ import annotations

import csv
import gzip
import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import DataError
from calibudget.sources.file_formats import place, read_arrow, read_rows
from calibudget.sources.limits import Limits
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source

ROWS = [{"a": "x", "n": 1}, {"a": "caf\u00e9\u2028", "n": None}]


def _jsonl_gz(path: Path) -> None:
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, ROWS)).encode(), mtime=0))


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def places(path: Path) -> list[str]:
    return [place(path, path.name, at) for at, _ in read_rows(path, path.name)]


def test_places_are_lines_or_rows(tmp_path: Path) -> None:
    _jsonl_gz(tmp_path / "r.jsonl.gz")
    assert places(tmp_path / "r.jsonl.gz") == ["r.jsonl.gz:1", "r.jsonl.gz:3"]
    _parquet(tmp_path / "r.parquet")
    assert places(tmp_path / "r.parquet") == ["r.parquet, row 1", "r.parquet, row 2"]


def test_csv_cells_are_text_and_may_hold_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        csv.writer(handle).writerows(
            [["q", "a"], ["one\nand, two", "1"], [], ['say "x"', "02"], ["long" * 50_000, "3"]]
        )
    rows = list(read_rows(path, "r.csv"))
    assert [place(path, "r.csv", at) for at, _ in rows] == ["r.csv:2", "r.csv:5", "r.csv:6"]
    assert rows[0][1] == {"q": "one\nand, two", "a": "1"}
    assert rows[1][1] == {"q": 'say "x"', "a": "02"}
    assert isinstance(rows[2][1], dict)
    assert len(str(rows[2][1]["q"])) == 200_000


def test_values_that_json_lacks_take_their_written_form(tmp_path: Path) -> None:
    columns = {"d": [date(2020, 1, 2)], "x": [float("nan")], "b": [b"\xff"]}
    table = pa.table(columns | {"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table, tmp_path / "r.parquet")
    ((_, fields),) = read_rows(tmp_path / "r.parquet", "r.parquet")
    assert fields == {"d": "2020-01-02", "x": None, "b": "/w==", "m": [["k", 1]]}


@pytest.mark.parametrize(
    ("column", "written", "said"),
    [
        (pa.array([float("inf")]), "inf", "not inf"),
        (pa.array([1_500_001], pa.duration("us")), "1500001 us", "not a duration"),
        (pa.array([1_500], pa.duration("ns")), "1 us", "not a duration"),
        (pa.array([{"t": 5, "u": "x"}], pa.struct({"t": pa.duration("s"), "u": pa.string()})),
         {"t": "5000000 us", "u": "x"}, "not an object"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), [1, 2, 3], "not a list"),
        (pa.array([b"\xff"]).view(pa.string()), "/w==", "not bytes that are no UTF-8"),
    ],
)  # fmt: skip
def test_a_column_that_json_lacks_matters_only_where_it_is_used(
    tmp_path: Path, column: pa.Array, written: object, said: str
) -> None:
    table = pa.table({"instruction": ["q"], "output": ["a"], "x": column})
    name = "r.arrow" if pa.types.is_interval(column.type) else "r.parquet"  # Parquet has no place for an interval
    if name == "r.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        with pa.OSFile(str(tmp_path / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    read = read_source(SourceSpec(label="s", path=name), tmp_path)
    assert (tuple(read.tally.columns_not_used), read.records[0].original["x"]) == (("x",), written)
    with pytest.raises(DataError, match=said):
        read_source(SourceSpec(label="s", path=name, columns={"context": "x"}), tmp_path)


def test_an_unknown_ending_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match=r"r\.txt: unknown kind of file; known endings are \.jsonl"):
        list(read_rows(tmp_path / "r.txt", "r.txt"))


@pytest.mark.parametrize(
    ("last", "said"), [({"n": [1]}, "column 'last': holds"), ([1], "rows.arrow: holds a column of")]
)
def test_a_type_that_python_has_no_values_for_is_refused_by_name(tmp_path: Path, last: object, said: str) -> None:
    """Arrow has such types (an interval of months), which nothing but another program or damage puts into a file."""
    table = pa.table({"instruction": ["é?"], "output": ["true"], "last": [last]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole = sink.getvalue().to_pybytes()
    told = []
    for at in (at for at, byte in enumerate(whole) if byte == 12):  # a list's mark, as an interval's
        (tmp_path / "rows.arrow").write_bytes(whole[:at] + b"\x0b" + whole[at + 1 :])
        try:
            told += [str(row) for _, row in read_arrow(tmp_path / "rows.arrow", "rows.arrow", Limits())]
        except DataError as error:
            told.append(str(error))
    assert f"{said} a type that Python has no values for" in told

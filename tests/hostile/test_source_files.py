"""Files that are torn, blown up, changed or out of bounds: named with their place, or one bad row skipped."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import DataError
from calibudget.sources import json_files
from calibudget.sources.file_formats import read_rows
from calibudget.sources.identity_index import Skips
from calibudget.sources.limits import Limits
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, open_source, read_source

GOOD = b'{"prompt": "p", "completion": "c"}\n'
MANY = b"".join(b'{"prompt": "p%d", "completion": "c%d"}\n' % (number, number**3) for number in range(2000))


def read(data_dir: Path, name: str, **fields: object) -> SourceRead:
    return read_source(SourceSpec(label="s", path=name, **fields), data_dir)  # type: ignore[arg-type]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(data)


COMPRESS = {"gz": gzip.compress, "zst": zstd}


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files_may_follow_one_another_in_one(tmp_path: Path, ending: str) -> None:
    half = MANY.index(b"\n", len(MANY) // 2) + 1
    (tmp_path / f"r.jsonl.{ending}").write_bytes(COMPRESS[ending](MANY[:half]) + COMPRESS[ending](MANY[half:]))
    assert len(read(tmp_path, f"r.jsonl.{ending}").records) == 2000


@pytest.mark.parametrize("on_error", ["refuse", "skip"])
@pytest.mark.parametrize("ending", COMPRESS)
def test_a_truncated_file_is_refused_with_the_line_it_broke_at(tmp_path: Path, ending: str, on_error: str) -> None:
    for cut in (-1, -4, -9, -200, 20):
        (tmp_path / f"r.jsonl.{ending}").write_bytes(COMPRESS[ending](MANY)[:cut])
        with pytest.raises(DataError, match=rf"source 's': r\.jsonl\.{ending}:\d+: the compressed file is cut short"):
            read(tmp_path, f"r.jsonl.{ending}", on_error=on_error)


def test_the_line_that_a_file_broke_at_follows_the_last_one_read(tmp_path: Path) -> None:
    found: list[object] = []
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(COMPRESS["gz"](MANY * 20)[:-1000])
    with pytest.raises(DataError, match="cut short") as refused:
        found += read_rows(path, path.name)  # those before the error stay in the list
    assert len(found) > 2000
    assert f":{len(found) + 1}:" in str(refused.value)


def test_what_is_not_compressed_as_its_name_says_is_refused(tmp_path: Path) -> None:
    for name, message in {
        "r.jsonl.zst": ":1: can't be read: ZSTD",
        "r.jsonl.gz": ":1: can't be read: Not a gz",
    }.items():
        (tmp_path / name).write_bytes(GOOD * 100)
        with pytest.raises(DataError, match=f"source 's': {name}{message}"):
            read(tmp_path, name)


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(free_bytes=2**16, expansion=20), "decompresses to more than 20 times its size"),
        (Limits(expanded_bytes=2**16), "decompresses to more than 65,536 bytes"),
    ],
)
def test_a_decompression_bomb_is_refused_while_it_unfolds(
    tmp_path: Path, ending: str, limits: Limits, message: str
) -> None:
    (tmp_path / f"r.jsonl.{ending}").write_bytes(COMPRESS[ending](b" " * 2**22 + GOOD))
    with pytest.raises(DataError, match=message):
        read(tmp_path, f"r.jsonl.{ending}", limits=limits)
    assert len(read(tmp_path, f"r.jsonl.{ending}").records) == 1


def test_a_json_array_is_bounded_and_json_lines_are_named_as_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"[" + GOOD.strip() + b"]")
    assert len(read(tmp_path, "r.json").records) == 1
    with pytest.raises(
        DataError, match=r"source 's': r\.json: a JSON array of more than 10 bytes; give it as JSON lines"
    ):
        read(tmp_path, "r.json", limits=Limits(array_bytes=10))


def test_nesting_is_bounded_in_every_kind_of_file(tmp_path: Path) -> None:
    deep: object = "x"
    for _ in range(30):
        deep = [deep]
    rows = [{"prompt": "p", "completion": "c", "x": deep}]
    (tmp_path / "r.jsonl").write_text(json.dumps(rows[0]))
    (tmp_path / "r.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    for name in ("r.jsonl", "r.json", "r.parquet"):
        assert len(read(tmp_path, name, limits=Limits(nesting=31)).records) == 1
        with pytest.raises(DataError, match=rf"{name}.*nested"):
            read(tmp_path, name, limits=Limits(nesting=30))


def test_a_flipped_byte_in_parquet_names_the_row_group(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([json.loads(line) for line in MANY.splitlines()])
    pq.write_table(
        table, tmp_path / "r.parquet", write_page_checksum=True, compression="zstd", row_group_size=500,
        use_dictionary=False,
    )  # fmt: skip
    column = pq.ParquetFile(tmp_path / "r.parquet").metadata.row_group(2).column(0)
    data = bytearray((tmp_path / "r.parquet").read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0x10
    (tmp_path / "r.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"source 's': r\.parquet, row group 3: can't be read: .*CRC"):
        read(tmp_path, "r.parquet", on_error="skip")


def test_arrow_whose_offsets_lead_out_of_its_buffers_is_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"prompt": ["p", "q"], "completion": ["a", "b"]})
    with pa.OSFile(str(tmp_path / "r.arrow"), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    offsets, wild = (b"".join(n.to_bytes(4, "little") for n in numbers) for numbers in ((0, 1, 2), (0, 1, 2**30)))
    data = (tmp_path / "r.arrow").read_bytes()
    assert offsets in data
    (tmp_path / "r.arrow").write_bytes(data.replace(offsets, wild, 1))
    with pytest.raises(DataError, match=r"source 's': r\.arrow: can't be read: "):
        read(tmp_path, "r.arrow")


def test_a_file_that_vanishes_shrinks_or_grows_while_it_is_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibudget.sources import inputs as module

    path = tmp_path / "r.jsonl"

    def meddling(change: object) -> object:
        def rows(*arguments: object, **options: object) -> Iterator[object]:
            found = list(read_rows(*arguments, **options))  # type: ignore[arg-type]
            change()  # type: ignore[operator]
            return iter(found)

        return rows

    for change, message in (
        (path.unlink, r"source 's': r\.jsonl: can't be read again"),
        (lambda: append(path, GOOD), r"source 's': r\.jsonl: changed while it was read"),
        (lambda: append(path, b'{"prompt": "half a l'), r"source 's': r\.jsonl: changed while it was read"),
        (lambda: os.truncate(path, 40), r"source 's': r\.jsonl: changed while it was read"),
        (lambda: path.write_bytes(MANY.replace(b"p1", b"p2")), r"source 's': r\.jsonl: changed while it was read"),
    ):
        path.write_bytes(MANY)
        monkeypatch.setattr(module, "read_blocks", meddling(change))
        with pytest.raises(DataError, match=message):
            read(tmp_path, "r.jsonl")


def test_a_selected_row_that_is_another_later_is_noticed(tmp_path: Path) -> None:
    """The pass is over when the file changes: what is read again must be what was named."""
    path = tmp_path / "r.jsonl"
    for change, place in (
        (lambda: path.write_bytes(MANY.replace(b"c8", b"c9", 1)), "3"),
        (lambda: path.write_bytes(MANY[:30]), r"\d+"),
        (lambda: path.write_bytes(b"\n" + MANY), r"\d+"),
    ):
        path.write_bytes(MANY)
        source = open_source(SourceSpec(label="s", path="r.jsonl"), tmp_path, selection_seed=0)
        rows = next(iter(source.parts()))
        change()  # type: ignore[no-untyped-call]
        with pytest.raises(DataError, match=rf"source 's': r\.jsonl:{place}: isn't what it was"):
            source.scan.records(rows)


def test_a_column_may_be_of_another_type_in_each_file(tmp_path: Path) -> None:
    for name, value in {"a": 1, "b": "one", "c": None, "d": [1.5], "e": {"x": True}}.items():
        table = pa.Table.from_pylist([{"prompt": name, "completion": "c", "extra": value}])
        pq.write_table(table, tmp_path / f"{name}.parquet")
    pq.write_table(pa.table({"prompt": [7], "completion": [True], "extra": ["x"]}), tmp_path / "f.parquet")
    result = read(tmp_path, "*.parquet", on_error="skip")
    assert [record.original["extra"] for record in result.records] == [1, "one", None, [1.5], {"x": True}]
    reason = "the response (field 'completion') must be text, not true or false"
    assert result.tally.skips == {reason: Skips(rows=1, first="f.parquet, row 1")}
    with pytest.raises(
        DataError, match=r"source 's': f\.parquet, row 1: the response .* must be text, not true or false"
    ):
        read(tmp_path, "*.parquet")


@pytest.mark.parametrize(
    ("name", "data", "places"),
    [
        ("r.json", b"[" + GOOD + b', 5, {"prompt": "q", "completion": " "}]', [", item 2", ", item 3"]),
        ("r.csv", b'prompt,completion\n"p\nq",c\nr\n"s\n\nt",\n', [":4", ":5"]),
        ("r.tsv", b"prompt\tcompletion\np\tc\np\x00\tc\nq\tc\td\n", [":3", ":4"]),
        ("r.csv.gz", gzip.compress(b"prompt,completion\np,c\n,c\n", mtime=0), [":3"]),
        ("r.jsonl.zst", zstd(GOOD + b'{"prompt": "p", "prompt": "q"}\n\n[]\n'), [":2", ":4"]),
    ],
)  # fmt: skip
def test_bad_rows_of_every_kind_are_skipped_counted_and_placed(
    tmp_path: Path, name: str, data: bytes, places: list[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    result = read(tmp_path, name, on_error="skip")
    assert (len(result.records), result.tally.skipped) == (1, len(places))
    assert [one.first for one in result.tally.skips.values()] == [name + place for place in places]


def test_lines_are_counted_only_when_an_error_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.jsonl").write_bytes(GOOD + b"broken\n" * 50 + GOOD.replace(b'"p"', b'"q"'))
    counted = []
    honest = json_files.line_number
    monkeypatch.setattr(json_files, "line_number", lambda path, at: counted.append(at) or honest(path, at))  # type: ignore[func-returns-value]
    result = read(tmp_path, "r.jsonl", on_error="skip")
    assert result.tally.skipped == 50
    assert list(result.tally.skips.values()) == [Skips(rows=50, first="r.jsonl:2")]
    assert len(counted) == 1


def test_reasons_beyond_the_twentieth_are_counted_together(tmp_path: Path) -> None:
    rows = "".join(
        json.dumps({"prompt": "p", "completion": "c", f"image{n}": "x.png"}) + "\n" for n in range(25) for _ in "ab"
    )
    (tmp_path / "r.jsonl").write_bytes(GOOD + rows.encode())
    skips = read(tmp_path, "r.jsonl", on_error="skip").tally.skips
    assert [one.rows for one in skips.values()] == [2] * 20 + [10]
    assert list(skips)[-1] == "other reasons"


def test_wanted_rows_are_found_again_by_their_place(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name in ["r.jsonl", "r.jsonl.gz", "r.jsonl.zst", "r.json", "r.csv", "r.parquet", "r.arrow"]:
        with subtests.test(name=name):
            table = pa.Table.from_pylist([json.loads(line) for line in MANY.splitlines()])
            path = tmp_path / name
            if name == "r.parquet":
                pq.write_table(table, path, row_group_size=300)
            elif name == "r.arrow":
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table, max_chunksize=300)
            elif name == "r.csv":
                path.write_text(
                    "prompt,completion\n" + "".join(f'"{r["prompt"]}",{r["completion"]}\n' for r in table.to_pylist())
                )
            else:
                text = json.dumps(table.to_pylist()).encode() if name == "r.json" else MANY
                path.write_bytes(COMPRESS.get(name.rpartition(".")[2], bytes)(text))
            rows = list(read_rows(path, name))
            chosen = [rows[i] for i in (0, 1, 299, 300, 1234, 1999)]
            assert list(read_rows(path, name, wanted=[at for at, _ in chosen])) == chosen
            assert list(read_rows(path, name, wanted=[])) == []

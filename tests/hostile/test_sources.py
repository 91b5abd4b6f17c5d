"""Files that are torn, malformed or made to do harm: a DataError with file and place, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import DataError
from calibudget.sources import json_files
from calibudget.sources.limits import Limits
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source

GOOD = b'{"prompt": "p", "completion": "c"}\n'
OTHER = b'{"prompt": "q", "completion": "c"}\n'


def read(data_dir: Path, name: str, **fields: object) -> SourceRead:
    return read_source(SourceSpec(label="s", path=name, **fields), data_dir)  # type: ignore[arg-type]


LINES = {
    "broken JSON": b'{"prompt": "p", "completion": "c"',
    "an array": b'["p", "c"]',
    "a number beyond doubles": b'{"prompt": "p", "completion": "c", "x": 1e309}',
    "invalid UTF-8": b'{"prompt": "p\xff", "completion": "c"}',
    "escaped NUL": b'{"prompt": "p\\u0000q", "completion": "c"}',
    "deep nesting": b'{"prompt": "p", "completion": "c", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an overlong integer": b'{"prompt": "p", "completion": "c", "x": ' + b"9" * 10_000 + b"}",
    "an empty prompt": b'{"prompt": " ", "completion": "c"}',
    "invisible prompt": b'{"prompt": "\\u2003\\u00a0", "completion": "c"}',
}


def test_a_bad_line_is_refused_by_its_number_or_skipped_and_counted(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for line in LINES.values():
        with subtests.test(line=line):
            (tmp_path / "r.jsonl").write_bytes(GOOD + line + b"\n" + OTHER)
            with pytest.raises(DataError, match=r"source 's': r\.jsonl:2: ") as caught:
                read(tmp_path, "r.jsonl")
            assert len(str(caught.value)) < 500
            result = read(tmp_path, "r.jsonl", on_error="skip")
            assert (len(result.records), result.tally.skipped) == (2, 1)
            assert next(one.first for one in result.tally.skips.values()) == "r.jsonl:2"


GOOD_LINES = {
    "a byte order mark": b'\xef\xbb\xbf{"prompt": "p", "completion": "c"}',
    "carriage returns": b'{"prompt": "p", "completion": "c"}\r',
    "a right-to-left mark": '{"prompt": "\u202ep", "completion": "c"}'.encode(),
}


@pytest.mark.parametrize("line", GOOD_LINES.values(), ids=GOOD_LINES)
def test_a_strange_but_good_line_is_read(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "r.jsonl").write_bytes(line)
    assert len(read(tmp_path, "r.jsonl").records) == 1


def test_an_overlong_line_is_refused_before_it_fills_memory_or_skipped(tmp_path: Path) -> None:
    limits = Limits(line_bytes=1000)
    for length in (1000, 3 * 2**20):
        (tmp_path / "r.jsonl").write_bytes(GOOD + b'{"prompt": "' + b"p" * length + b'", "completion": "c"}\n' + OTHER)
        with pytest.raises(DataError, match=r"source 's': r\.jsonl:2: the line is longer than 1,000 bytes"):
            read(tmp_path, "r.jsonl", limits=limits)
        result = read(tmp_path, "r.jsonl", limits=limits, on_error="skip")
        assert (len(result.records), result.tally.skipped) == (2, 1)


def test_a_malformed_file_is_refused_with_its_place(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, data, message in [
        ("r.json", b'[{"prompt": "p", "completion": "c"},', r"r\.json: not valid JSON"),
        ("r.json", b'[{"prompt": "p", "completion": "c"}, 5]', r"r\.json, item 2: a row must be an object, not int"),
        ("r.json", b"[]", "no records"),
        ("r.json", b'{"data": []}', r"r\.json:1: the fields show no known format"),
        ("r.json", b"[\xff]", r"r\.json: not valid JSON"),
        ("r.csv", b"", r"r\.csv:1: the header"),
        ("r.csv", b"prompt,prompt\na,b\n", r"r\.csv:1: the header must name every column, each once"),
        ("r.csv", b'prompt,completion\np,"c\n', r"r\.csv:2: .*end of data"),
        ("r.csv", b'prompt,completion\np,"c"d\n', r"r\.csv:2: "),
        ("r.csv", b"prompt,completion\np\xff,c\n", r"r\.csv:\d: invalid UTF-8"),
        ("r.csv", b"prompt,completion\np\x00,c\n", r"r\.csv:2: .*NUL"),
        ("r.csv", b"prompt,completion\np\n", r"r\.csv:2: 1 cell under 2 columns"),
        ("r.csv", b"prompt,completion\np,\n", r"r\.csv:2: the response .* is empty"),
        ("r.csv", b"prompt,completion\n", "no records"),
        ("r.parquet", b"", r"r\.parquet: can't be read"),
        ("r.parquet", b"PAR1 no PAR1", r"r\.parquet: can't be read"),
        ("r.arrow", b"", r"r\.arrow: can't be read"),
        ("r.arrow", b"\xff\xff\xff\xff\x10\x00\x00\x00junk", r"r\.arrow: can't be read"),
        ("r.parquet.gz", b"", "unknown kind of file"),
    ]:
        with subtests.test(name=name, data=data, message=message):
            (tmp_path / name).write_bytes(data)
            with pytest.raises(DataError, match=rf"^source 's': .*{message}"):
                read(tmp_path, name)


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["prompt", "prompt"])
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match=r"source 's': r\.parquet:1: the header must name every column, each once"):
        read(tmp_path, "r.parquet")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.jsonl").write_bytes(GOOD)

    def deny(path: Path, limits: object, **_: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(json_files, "open_plain", deny)
    with pytest.raises(DataError, match=r"source 's': r\.jsonl:1: can't be read: Permission denied"):
        read(tmp_path, "r.jsonl")

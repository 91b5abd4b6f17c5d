"""Small inputs that ask for a great deal of time or memory end soon, with an error that names them."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import DataError
from calibudget.sources.file_formats import read_rows
from calibudget.sources.limits import Limits
from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer
from calibudget.values import nfc

MARKS = [character for character in map(chr, range(0x20000)) if unicodedata.category(character)[0] == "M"]


def within(code: Any, *arguments: Any, cpu_s: Any) -> Any:
    """Run code in a process that the system ends after so many seconds of computing, whatever else the machine does."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({cpu_s}, {cpu_s}))\n{code}"
    return subprocess.run([sys.executable, "-c", limited, *map(str, arguments)], capture_output=True, check=False)


def test_a_run_of_combining_marks_takes_time_in_proportion() -> None:
    code = (
        "from calibudget.sources.identity import identify\nfrom calibudget.records import Message\n"
        "identify([Message(role='user', content='a' + '\\u0301\\u0323' * 60_000)], 'a' + '\\u0344' * 60_000)"
    )
    assert within(code, cpu_s=10).returncode == 0


@given(st.randoms(use_true_random=False))
def test_the_form_of_long_runs_is_unicode_s_own(random: random.Random) -> None:
    run = "".join(random.choices(MARKS, k=random.randrange(200, 400)))
    text = random.choice(["", "e", "é", "가", "x "]) + run + random.choice(["", "a\u0301", "\u1161", "é"])
    assert nfc(text) == unicodedata.normalize("NFC", text)


@pytest.mark.slow
def test_a_pattern_that_backtracks_without_end_is_refused_by_name() -> None:
    spec = AnswerSpec(kind="regex", pattern="(a+)+$")
    assert parse_answer(spec, "baaa") == "aaa"
    with pytest.raises(DataError, match=r"answer\.pattern: '\(a\+\)\+\$' takes too long"):
        parse_answer(spec, "a" * 5000 + "b")
    assert answers_equal(spec, "aaa", parse_answer(spec, "b aaa"))  # and the next text has a new process


@pytest.mark.parametrize("ending", [".jsonl.gz", ".csv.gz"])
def test_a_compressed_file_of_blank_lines_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"blank{ending}"
    row = json.dumps({"a": "b"}) if "json" in ending else "a\nb"
    with gzip.open(path, "wb") as handle:
        handle.write(row.encode() + b"\n" + b"\n" * 1_500_000)
    with pytest.raises(DataError, match="more than 1,000,000 blank lines"):
        list(read_rows(path, path.name))


def test_a_cell_of_a_table_that_is_too_long_is_a_bad_row(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for kind in ["text", "bytes", "list", "dictionary"]:
        with subtests.test(kind=kind):
            long = "x" * 2_000
            values = ["a", long, "b"]
            column = {
                "text": pa.array(values),
                "bytes": pa.array([value.encode() for value in values]),
                "list": pa.array([[value] for value in values]),
                "dictionary": pa.array(values).dictionary_encode(),
            }[kind]
            pq.write_table(pa.table({"key": ["0", "1", "2"], "cell": column}), tmp_path / "t.parquet")
            with (
                pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink,
                pa.ipc.new_stream(sink, pa.schema({"cell": column.type})) as out,
            ):
                out.write_batch(pa.record_batch({"cell": column}))
            for name in ("t.parquet", "t.arrow"):
                rows = [fields for _, fields in read_rows(tmp_path / name, name, Limits(line_bytes=1_000))]
                assert [isinstance(fields, DataError) for fields in rows] == [False, True, False]
                assert "column 'cell': the cell is longer than 1,000 bytes" in str(rows[1])

"""Parquet files read wholly."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError
from calibudget.store.parquet import _ROW_GROUP, load_table, read_table, write_table

PROGRAM = """
import sys
from pathlib import Path
from calibudget.store.parquet import load_table
for _ in range(3):
    load_table(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_process_that_ends_after_reading_ends_well(tmp_path: Path) -> None:
    """Arrow's own threads, still beginning when the interpreter ended, aborted every sixth such process."""
    path = tmp_path / "table.parquet"
    columns = {f"c{number}": pa.array([f"{number} of {row}" for row in range(20_000)]) for number in range(10)}
    write_table(path, pa.table(columns), {"schema": "test/1"}, dictionary=[])
    command = [sys.executable, "-c", PROGRAM, str(path)]
    codes = []
    for _ in range(6):  # several at once, so that their threads are held up
        processes = [subprocess.Popen(command) for _ in range(6)]
        codes += [process.wait() for process in processes]
    assert codes == [0] * 36


def test_a_damaged_page_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_table(path, pa.table({"text": [f"{row * 7919 % 10007}" for row in range(999)]}), {}, dictionary=[])
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match=r"^table\.parquet: damaged, or no Parquet file: .*CRC[^\n]*$"):
        load_table(path)


def test_a_table_is_written_in_groups_of_rows_and_texts_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_table(path, pa.table({"n": range(_ROW_GROUP + 1)}), {}, dictionary=[])
    read = pq.ParquetFile(path)
    assert [read.metadata.row_group(k).num_rows for k in range(read.num_row_groups)] == [_ROW_GROUP, 1]
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pq.write_table(pa.table({"text": bad}), path)
    with pytest.raises(ArtefactError, match=r"^table\.parquet: damaged, or no Parquet file: .*UTF8"):
        load_table(path)
    write_table(path, pa.table({"n": [1]}), {}, dictionary=[])
    with pytest.raises(ArtefactError, match=r"column 'n' must be int64 without nulls, not int64$"):
        read_table(path, pa.schema([pa.field("n", pa.int64(), nullable=False)]))

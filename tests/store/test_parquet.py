"""Parquet files read wholly."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from calibudget.store.parquet import write_table

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

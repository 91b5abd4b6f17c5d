"""The testbed's commands; a whole run is in test_processes.py."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from testbed.__main__ import main


@pytest.mark.full
def test_tables_of_the_committed_results_are_printed(
    protocol_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = protocol_path.parents[2] / "benchmarks" / "results" / "testbed" / "results.jsonl.gz"
    (tmp_path / "results.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    assert main(["tables", str(protocol_path), "--results", str(tmp_path)]) == 0
    assert "| calibudget | 10 | 0.6993 (0.0068) |" in capsys.readouterr().out


def test_results_that_are_not_there_are_named(
    protocol_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", str(protocol_path), "--results", str(tmp_path)]) == 2
    assert "holds no results of this protocol" in capsys.readouterr().err

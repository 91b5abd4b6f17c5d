"""A temporary folder that is full is named, with the way out, wherever sources write what memory doesn't hold."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from calibudget.errors import DataError
from calibudget.sources.identity_table import ROW, IdentityTable, Scratch

OUT = r"calibudget-.*: can't be written: File too large; make room there, or set TMPDIR to a folder with room$"


@contextmanager
def short_files(size: int = 1_000) -> Iterator[None]:
    """No file may grow beyond so many bytes, not even the one that the test run's own report may go to."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_file_that_does_not_fit_names_its_folder() -> None:
    scratch = Scratch()
    scratch.append("a", b"x" * 1_000)
    with short_files(), pytest.raises(DataError, match=OUT):
        scratch.append("a", b"x")


def test_a_table_that_does_not_fit_names_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibudget.sources.identity_table.BUFFER", 100)
    with short_files(), pytest.raises(DataError, match=OUT):
        IdentityTable().add_rows(np.zeros(10_000, dtype=ROW))


def test_a_disk_without_room_for_a_temporary_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with short_files(0), pytest.raises(DataError, match=r"^no temporary folder .* TMPDIR to a folder with room$"):
        Scratch().folder()

"""Files that live as long as the object that needs them: what doesn't fit in memory lies there."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calibudget.errors import DataError


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say where something was written that doesn't fit: such errors of the system name no file.

    Raises:
        DataError: the disk is full, or refuses the file's length.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise DataError(
            f"{folder}: can't be written: {error.strerror}; make room there, or set TMPDIR to a folder with room"
        ) from error


def temporary_folder() -> Path:
    """Where the system keeps temporary files.

    Raises:
        DataError: none of the places for it can be written to, as on a full disk.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise DataError(
            "no temporary folder can be written to; make room, or set TMPDIR to a folder with room"
        ) from error


class Scratch:
    """A folder below the system's temporary one, made at the first file and removed with this object."""

    def __init__(self) -> None:
        self._root: Path | None = None

    def folder(self) -> Path:
        """The folder."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="calibudget-", dir=temporary_folder()))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        return self._root

    def path(self, name: str) -> Path:
        """Where a file of that name lies or may be written."""
        return self.folder() / name

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file."""
        with writing(self.folder()), self.path(name).open("ab") as handle:  # buffered: a raw write may fall short
            handle.write(data)

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of a file."""
        with self.path(name).open("rb") as handle:
            yield from handle

    def read(self, name: str, start: int, size: int) -> bytes:
        """So many bytes of a file, fewer at its end."""
        with self.path(name).open("rb", buffering=0) as handle:
            handle.seek(start)
            return handle.read(size)

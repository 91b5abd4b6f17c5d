"""A table of identities on disk: every record of a source in a few fixed-width bytes, given back in key order.

Its files live as long as it does. Rows are gathered in memory and written in runs, each parted by the first bits of the
keys; a part of all runs is sorted when its turn comes. Memory holds `BUFFER` rows, or one of `PARTS` parts, whichever
is more, however many records a source has. Records with one id have one key, so they come out side by side.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError
from calibudget.hardware import temporary_folder


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


#: Rows held in memory before they are written.
BUFFER: Final = 65_536
#: Of so many parts a run tells where each begins; as many as ten bits can say.
PARTS: Final = 1024
#: key: the "selection" key; text and prompt: digests of the normal form; at, file: where the record stands; name: where
#: the record's own id stands in `names`, -1 if its id is its text's digest; answer: which label it has, -1 for none.
ROW: Final = np.dtype(
    [
        ("key", "V32"),
        ("text", "V32"),
        ("prompt", "V32"),
        ("at", "<i8"),
        ("name", "<i8"),
        ("file", "<u4"),
        ("copy", "<u4"),
        ("answer", "i1"),
    ]
)
Rows = NDArray[Any]
_WORDS: Final = 4
_RUNS: Final = "rows"
#: Rows that are put in order and written at a time.
_WRITTEN: Final = 8192


def words(column: Rows) -> NDArray[np.uint64]:
    """A column of 32-byte values as big-endian words, shape (n, 4): they compare as the bytes do."""
    return np.ascontiguousarray(column).view(">u8").reshape(-1, _WORDS).astype(np.uint64)


def lead(column: Rows) -> NDArray[np.uint64]:
    """The first word of each value of a column."""
    return column.getfield(np.dtype(">u8"), 0).astype(np.uint64)


def sorted_rows(rows: Rows) -> Rows:
    """Rows by key, those of equal keys as they stand."""
    first = lead(rows["key"])
    order = np.argsort(first)
    if np.any(first[order[1:]] == first[order[:-1]]):  # equal keys, or two that share their first eight bytes
        key = words(rows["key"])
        order = np.lexsort((np.arange(len(rows)), key[:, 3], key[:, 2], key[:, 1], key[:, 0]))
    return taken(rows, order)


def taken(rows: Rows, order: NDArray[np.int64]) -> Rows:
    """Rows in an order; a sixth of the time that numpy takes for rows with fields."""
    return rows.view(f"V{rows.dtype.itemsize}")[order].view(rows.dtype)


def smallest(rows: Rows, size: int) -> Rows:
    """Rows among which those of the `size` smallest keys are, few others beside them."""
    if len(rows) <= size:
        return rows
    first = lead(rows["key"])
    found: Rows = rows[first <= np.partition(first, size - 1)[size - 1]]
    return found


def same_as_before(column: Rows) -> NDArray[np.bool_]:
    """Of a sorted column of 32-byte values, which equal the one before."""
    value = words(column)
    same = np.zeros(len(value), dtype=np.bool_)
    same[1:] = np.all(value[1:] == value[:-1], axis=1)
    return same


def among(column: Rows, wanted: frozenset[bytes]) -> NDArray[np.bool_]:
    """Which values of a 32-byte column are in a set."""
    found = np.zeros(len(column), dtype=np.bool_)
    if not wanted or not len(column):
        return found
    firsts = np.unique(np.frombuffer(b"".join(one[:8] for one in wanted), dtype=">u8").astype(np.uint64))
    for index in np.flatnonzero(np.isin(lead(column), firsts)):
        found[index] = column[index].tobytes() in wanted
    return found


class PartedRows:
    """Rows to be added first and read afterwards, in the order of their key; on disk once they are more than `BUFFER`.

    Args:
        dtype: of a row, which begins with its `key` of 32 bytes.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._scratch = Scratch()
        self._pending: list[bytes] = []
        self._pending_rows = self._written = 0
        self._runs: list[NDArray[np.int64]] = []
        self._kept: Rows | None = None
        self.count = 0

    def add_rows(self, rows: Rows) -> None:
        """Add rows."""
        self._pending.append(rows.tobytes())
        self._pending_rows += len(rows)
        self.count += len(rows)
        if self._pending_rows >= BUFFER:
            self._flush()

    def parts(self) -> Iterator[Rows]:
        """All rows in key order, part by part."""
        if not self._runs:
            if self._kept is None:
                self._kept = sorted_rows(self._take())
            yield self._kept
            return
        self._flush()
        size, step = self._dtype.itemsize, max(1, PARTS * (BUFFER // 4) // self.count)
        with self._scratch.path(_RUNS).open("rb", buffering=0) as handle:
            for part in range(0, PARTS, step):
                pieces = []
                for starts in self._runs:
                    begin, end = starts[part], starts[min(part + step, PARTS)]
                    handle.seek(begin * size)
                    pieces.append(handle.read((end - begin) * size))
                yield sorted_rows(np.frombuffer(b"".join(pieces), dtype=self._dtype))

    def _take(self) -> Rows:
        rows = np.frombuffer(b"".join(self._pending), dtype=self._dtype)
        self._pending, self._pending_rows = [], 0
        return rows

    def _flush(self) -> None:
        """Write what is pending as a run, parted."""
        rows = self._take()
        if not len(rows):
            return
        part = lead(rows["key"]) // (2**64 // PARTS)
        order = np.argsort(part.astype(np.uint16), kind="stable")
        self._runs.append(np.searchsorted(part[order], np.arange(PARTS + 1)) + self._written)
        self._written += len(rows)
        for start in range(0, len(rows), _WRITTEN):
            self._scratch.append(_RUNS, taken(rows, order[start : start + _WRITTEN]).tobytes())


class IdentityTable(PartedRows):
    """The identities of a source's records, and the ids that records have of their own.

    The `name` of a row is this table's, or that of another one that is kept for its names.
    """

    def __init__(self) -> None:
        super().__init__(ROW)
        self._names = bytearray()
        self._names_written = 0

    def add_names(self, own_ids: Iterable[str]) -> list[int]:
        """Keep own ids; where each is found, for a row's `name`."""
        offsets = []
        for own_id in own_ids:
            offsets.append(self._names_written + len(self._names))
            name = own_id.encode()
            self._names += len(name).to_bytes(4, "little") + name
        return offsets

    def name(self, offset: int) -> str:
        """The own id that a row's `name` points to."""
        size = int.from_bytes(self._name_bytes(offset, 4), "little")
        return self._name_bytes(offset + 4, size).decode("utf-8")

    def _name_bytes(self, offset: int, size: int) -> bytes:
        if offset >= self._names_written:
            start = offset - self._names_written
            return bytes(self._names[start : start + size])
        return self._scratch.read("names", offset, size)

    def _flush(self) -> None:
        if self._names:
            self._scratch.append("names", bytes(self._names))
            self._names_written += len(self._names)
            self._names = bytearray()
        super()._flush()

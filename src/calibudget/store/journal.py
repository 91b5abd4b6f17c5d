"""An append-only journal of finished work, from which an interrupted stage resumes.

A line is a checksum, a space and a canonical JSON object. The first line is the header: what the work belongs to.
Each checksum covers the one before it, so a line counts only if everything above it is as it was written. What
follows a damaged or torn line is never trusted: the journal is cut there and that work is done again. One process
may write a journal at a time; the lock of the directory it lies in sees to that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from calibudget.errors import ArtefactError, refuse_as
from calibudget.store.canonical import canonical_json, loads_object, read_bytes
from calibudget.store.files import is_no_file, write_atomic

_CHECKSUM_LENGTH: Final = 32


class Journal:
    """One open journal; make it with `Journal.open`.

    Attributes:
        entries: the entries found at opening, in the order they were appended. JSON has one kind of number: a
            float without a fraction comes back as an int.
    """

    def __init__(self, path: Path, descriptor: int, entries: tuple[dict[str, object], ...], checksum: str) -> None:
        self.entries = entries
        self._path = path
        self._descriptor: int | None = descriptor
        self._checksum = checksum

    @classmethod
    def open(cls, path: Path, header: Mapping[str, object]) -> Self:
        """Open a journal for appending, creating it when it isn't there.

        The header says what the work belongs to (recipe, model, data); it must equal that of an existing file.

        Raises:
            ArtefactError: the file has another header or none that can be trusted, or can't be read or written.
            InputError: the header has no canonical JSON form.
        """
        expected = canonical_json(dict(header))
        if is_no_file(path):
            raise ArtefactError(f"{path}: is no regular file, so no journal can be kept in it; remove it")
        if not path.exists():
            write_atomic(path, _line("", expected)[0])
        data = read_bytes(path)
        found, checksum, end = _next_line(data, 0, "")
        if found is None:
            raise ArtefactError(f"{path}: the journal's header is damaged; delete the file to do its work again")
        if found != expected:
            raise ArtefactError(
                f"{path}: the journal belongs to another run (its header differs in {_differing(expected, found)}); "
                "choose another output directory, or delete the file to do its work again"
            )
        entries: list[dict[str, object]] = []
        while True:
            body, following, after = _next_line(data, end, checksum)
            if body is None:
                break
            entries.append(loads_object(body, f"{path.name}: entry {len(entries) + 1}"))
            checksum, end = following, after
        return cls(path, _open_at(path, end), tuple(entries), checksum)

    def append(self, entry: Mapping[str, object]) -> None:
        """Add one entry; when this returns, it is on the disk.

        Raises:
            ArtefactError: the disk is full or can't be written, the journal holding what it held before; or the
                journal is closed.
            InputError: the entry has no canonical JSON form.
        """
        if self._descriptor is None:
            raise ArtefactError(f"{self._path}: the journal is closed")
        line, checksum = _line(self._checksum, canonical_json(dict(entry)))
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
            raise ArtefactError(f"{self._path}: can't be written: {error.strerror}") from error
        self._checksum = checksum

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _differing(one: bytes, two: bytes) -> str:
    """The fields in which two headers differ, those within mappings with a dot."""
    first, second = (_flat(loads_object(header, "the journal's header")) for header in (one, two))
    return ", ".join(sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)))


def _flat(header: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in header.items():
        flat |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _line(previous: str, body: bytes) -> tuple[bytes, str]:
    checksum = hashlib.sha256(previous.encode() + body).hexdigest()[:_CHECKSUM_LENGTH]
    return checksum.encode() + b" " + body + b"\n", checksum


def _next_line(data: bytes, start: int, previous: str) -> tuple[bytes | None, str, int]:
    """Body, checksum and end of the line at `start`; a body of None where no whole, undamaged line stands."""
    end = data.find(b"\n", start) + 1
    body = data[start + _CHECKSUM_LENGTH + 1 : end - 1]
    line, checksum = _line(previous, body)
    if data[start:end] != line:
        return None, previous, start
    return body, checksum, end


def _open_at(path: Path, end: int) -> int:
    with refuse_as(ArtefactError, f"{path}: can't be opened for writing", OSError):
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
    return descriptor

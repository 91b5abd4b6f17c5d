"""What a source is read from: data files and hub data sets behind one face, readable in full and row by row again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from calibudget.errors import ArtefactError, DataError
from calibudget.sources.files import DataFile, find_files
from calibudget.sources.hub import RowDigest, hub_name, hub_rows
from calibudget.sources.limits import Limits
from calibudget.sources.rows import Row, place, read_rows
from calibudget.sources.spec import SourceSpec
from calibudget.store import SourceFile, file_digest


class Input(Protocol):
    """One file, or one split of a hub data set."""

    @property
    def bytes(self) -> int | None:
        """Its length when it was found; None where only reading tells."""
        ...

    def rows(self) -> Iterator[Row]:
        """All rows, in order."""
        ...

    def again(self, wanted: Sequence[int]) -> Iterator[Row]:
        """The rows that stand at the given ascending places."""
        ...

    def place(self, at: int) -> str:
        """Where a row stands, in words."""
        ...

    def bound(self) -> SourceFile:
        """What is read, bound by its bytes; without a length, to be asked once all rows were.

        Raises:
            DataError: it changed while it was read.
        """
        ...


@contextmanager
def _naming(label: str) -> Iterator[None]:
    """Say of which source a file is that can't be read."""
    try:
        yield
    except DataError as error:
        raise DataError(f"source {label!r}: {error}") from error


class FileInput:
    """A data file of the source with that label.

    Attributes:
        file: which one.
    """

    def __init__(self, label: str, file: DataFile, limits: Limits) -> None:
        self._label = label
        self.file = file
        self._limits = limits

    @property
    def bytes(self) -> int | None:
        """See `Input`."""
        return self.file.version[0]

    def rows(self) -> Iterator[Row]:
        """See `Input`."""
        with _naming(self._label):
            yield from read_rows(self.file.path, self.file.name, self._limits)

    def again(self, wanted: Sequence[int]) -> Iterator[Row]:
        """See `Input`."""
        with _naming(self._label):
            yield from read_rows(self.file.path, self.file.name, self._limits, wanted=wanted)

    def place(self, at: int) -> str:
        """See `Input`."""
        return place(self.file.path, self.file.name, at)

    def bound(self) -> SourceFile:
        """See `Input`."""
        file = self.file
        with _naming(self._label):
            try:
                digest = file_digest(file.path.resolve())
                status = file.path.stat()
            except (ArtefactError, OSError) as error:
                raise DataError(f"{file.name}: can't be read again: {error}") from error
            if (status.st_size, status.st_mtime_ns) != file.version:
                raise DataError(f"{file.name}: changed while it was read; run again when it is complete")
        return SourceFile(name=file.name, bytes=digest.bytes, sha256=digest.sha256)


class HubInput:
    """A split of a hub data set."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._digest = RowDigest()

    @property
    def bytes(self) -> int | None:
        """See `Input`."""
        return None

    def rows(self) -> Iterator[Row]:
        """See `Input`."""
        self._digest = RowDigest()
        return self._digest.of(hub_rows(self._spec))

    def again(self, wanted: Sequence[int]) -> Iterator[Row]:
        """See `Input`; the data set is gone through once more."""
        places = iter(wanted)
        following = next(places, None)
        for at, fields in hub_rows(self._spec) if following is not None else ():
            if at == following:
                yield at, fields
                following = next(places, None)
                if following is None:
                    return

    def place(self, at: int) -> str:
        """See `Input`."""
        return f"{hub_name(self._spec)}, row {at}"

    def bound(self) -> SourceFile:
        """See `Input`."""
        return self._digest.file(hub_name(self._spec))


def inputs_of(spec: SourceSpec, data_dir: Path) -> tuple[Input, ...]:
    """What a source is read from, in an order that only names decide.

    Raises:
        DataError: as `find_files`.
    """
    if spec.hub is not None:
        return (HubInput(spec),)
    return tuple(FileInput(spec.label, file, spec.limits) for file in find_files(spec, data_dir))

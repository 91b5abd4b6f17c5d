"""What a source is read from: data files and hub data sets behind one face, readable in full and row by row again.

Hub data sets come through `datasets`: data only, never their code. `HF_HOME` and `HF_HUB_OFFLINE` hold as `datasets`
reads them; what was downloaded once is found offline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from calibudget.errors import ArtefactError, DataError, refuse_as, requires
from calibudget.records import SourceFile
from calibudget.sources.file_formats import batch_rows, place, read_blocks, read_rows
from calibudget.sources.files import DataFile, find_files
from calibudget.sources.json_files import Block, Row, at_places, beside_rows
from calibudget.sources.spec import SourceSpec
from calibudget.store.checksums import source_file

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 4096
#: Whether hub data sets are looked for in the local cache alone.
_CACHE_ALONE: Final = ContextVar("_CACHE_ALONE", default=False)


@contextmanager
def from_the_cache() -> Iterator[None]:
    """Within it, hub data sets come from the local cache or not at all: nothing is asked of the hub or waited for."""
    token = _CACHE_ALONE.set(True)
    try:
        yield
    finally:
        _CACHE_ALONE.reset(token)


def _hub_name(spec: SourceSpec) -> str:
    """What a hub data set is called in messages and evidence."""
    parts = [f"hub:{spec.hub}", *([spec.subset] if spec.subset else []), spec.split]
    return "/".join(parts) + (f"@{spec.revision}" if spec.revision else "")


def _hub_rows(spec: SourceSpec) -> Iterator[Row]:
    """The rows of a hub data set's split, numbered from 1.

    With `streaming` they come as the hub sends them and nothing is kept on disk; else the data set is downloaded first,
    and found again without a network.

    Raises:
        DependencyError: `datasets` isn't installed.
        DataError: the data set, subset, split or revision can't be had, or the hub stops answering; offline is named
            where that is why.
    """
    fields = (
        fields for table in _tables(spec) for batch in table.to_batches() for fields in batch_rows(batch, spec.limits)
    )
    return enumerate(fields, start=1)


def _tables(spec: SourceSpec) -> Iterator[pa.Table]:
    with requires(f"{spec.name}, a hub data set,", "lm"):
        import datasets
    cache_alone = _CACHE_ALONE.get()
    try:
        with _offline() if cache_alone else nullcontext():
            found = datasets.load_dataset(
                spec.hub, spec.subset, split=spec.split, revision=spec.revision, streaming=spec.streaming
            )
        yield from found.with_format("arrow").iter(_BATCH_ROWS)
    except Exception as error:  # datasets and its clients raise dozens of types, none of them in common
        offline = " (HF_HUB_OFFLINE is set)" if datasets.config.HF_HUB_OFFLINE else ""
        offline = " (it was looked for in the local cache alone)" if cache_alone else offline
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
        raise DataError(f"{spec.name}: {_hub_name(spec)} can't be loaded{offline}: {reason}") from error


@contextmanager
def _offline() -> Iterator[None]:
    """What HF_HUB_OFFLINE does, in a process that began without it: the libraries read it once, when imported."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


class FileInput:
    """A data file of a source."""

    def __init__(self, spec: SourceSpec, file: DataFile) -> None:
        self._spec = spec
        self.file = file

    def blocks(self) -> Iterator[Row | Block]:
        """All rows, in order, many at once where they lie so."""
        with refuse_as(DataError, self._spec.name, DataError):
            yield from read_blocks(self.file.path, self.file.name, self._spec.limits, rows=self._spec.rows)

    def again(self, wanted: Sequence[int]) -> Iterator[Row]:
        """The rows that stand at the given ascending places."""
        with refuse_as(DataError, self._spec.name, DataError):
            spec = self._spec
            yield from read_rows(self.file.path, self.file.name, spec.limits, wanted=wanted, rows=spec.rows)

    def place(self, at: int) -> str:
        """Where a row stands, in words."""
        return place(self.file.path, self.file.name, at, self._spec.rows)

    def beside(self) -> Mapping[str, object]:
        """What stands beside the rows, in a file that is one object."""
        if self._spec.rows is None:
            return {}
        with refuse_as(DataError, self._spec.name, DataError):
            return beside_rows(self.file.path, self.file.name, self._spec.limits, self._spec.rows)

    def bound(self) -> SourceFile:
        """What is read, bound by its bytes; without a length, to be asked once all rows were.

        Raises:
            DataError: it changed while it was read.
        """
        file = self.file
        place = f"{self._spec.name}: {file.name}"
        with refuse_as(DataError, f"{place}: can't be read again", ArtefactError, OSError):
            bound = source_file(file.path, file.name)
            status = file.path.stat()
        if (status.st_size, status.st_mtime_ns) != file.version:
            raise DataError(f"{place}: changed while it was read; run again when it is complete")
        return bound


class HubInput:
    """A split of a hub data set, with the methods of `FileInput`.

    It is bound by its rows, each as a line of compact JSON with sorted keys; a bad row by an empty line.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._spec, self._name = spec, _hub_name(spec)
        self._bytes, self._sha256 = 0, hashlib.sha256()

    def blocks(self) -> Iterator[Row | Block]:
        """See `FileInput`; they come one by one."""
        self._bytes, self._sha256 = 0, hashlib.sha256()
        for at, found in _hub_rows(self._spec):
            fields = {} if isinstance(found, DataError) else found
            text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if fields else ""
            line = text.encode("utf-8", "surrogatepass") + b"\n"
            self._sha256.update(line)
            self._bytes += len(line)
            yield at, found

    def again(self, wanted: Sequence[int]) -> Iterator[Row]:
        """See `FileInput`; the data set is gone through once more."""
        return at_places(_hub_rows(self._spec), wanted)

    def place(self, at: int) -> str:
        """See `FileInput`."""
        return f"{self._name}, row {at}"

    def beside(self) -> Mapping[str, object]:
        """See `FileInput`; there is nothing."""
        return {}

    def bound(self) -> SourceFile:
        """See `FileInput`."""
        return SourceFile(name=self._name, bytes=self._bytes, sha256=self._sha256.hexdigest())


#: One file, or one split of a hub data set.
Input = FileInput | HubInput


def inputs_of(spec: SourceSpec, data_dir: Path) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    """What a source is read from, in an order that only names decide; and the files beside that, see `find_files`."""
    if spec.hub is not None:
        return (HubInput(spec),), ()
    found = find_files(spec, data_dir)
    return tuple(FileInput(spec, file) for file in found.files), found.beside

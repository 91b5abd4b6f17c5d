"""The one pass over a source: every row read, named, counted and put into its table; nothing of it stays in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError
from calibudget.keys import order_keys
from calibudget.records import Record
from calibudget.sources.inputs import Input, inputs_of
from calibudget.sources.making import RecordMaker
from calibudget.sources.rows import Fields
from calibudget.sources.spec import SourceSpec
from calibudget.sources.table import IdentityTable, Rows
from calibudget.store import SourceFile
from calibudget.wording import counted

#: How many of the skipped rows are kept as messages.
_EXAMPLES: Final = 5
_NUMBERED: Final = re.compile(r"#[0-9]+$")


@dataclass(slots=True, kw_only=True)
class Scan:
    """A source after its pass.

    Attributes:
        spec: what the recipe says of it.
        inputs: what it was read from.
        selection_seed: seed of the keys in the table.
        table: one row a record.
        files: every file read, bound by its bytes; for a hub data set its name and the digest of its rows.
        read: rows found.
        filtered: rows that the `where` filter left out.
        skipped: rows that `on_error: skip` left out.
        skipped_examples: why, for the first few of them.
    """

    spec: SourceSpec
    inputs: tuple[Input, ...]
    selection_seed: int
    table: IdentityTable = field(default_factory=IdentityTable)
    files: tuple[SourceFile, ...] = ()
    read: int = 0
    filtered: int = 0
    skipped: int = 0
    skipped_examples: list[str] = field(default_factory=list)

    def ids(self, rows: Rows) -> list[str]:
        """The record ids of rows."""
        texts, copies = rows["text"].tolist(), rows["copy"].tolist()
        if self.spec.id_field is None:
            bare = [text.hex() for text in texts]
        else:
            bare = [self.table.name(offset) for offset in rows["name"].tolist()]
        return [one if copy < 2 else f"{one}#{copy}" for one, copy in zip(bare, copies, strict=True)]

    def records(self, rows: Rows) -> list[Record]:
        """The records of rows, read again.

        Raises:
            DataError: one isn't what it was in the pass.
        """
        fields: list[Fields] = [{}] * len(rows)
        for index, found in self.again(rows["file"], rows["at"]):
            fields[index] = found
        return self.made(rows, fields)

    def again(self, files: NDArray[np.uint32], places: NDArray[np.int64]) -> Iterator[tuple[int, Fields]]:
        """The fields of rows, read again in one way through each file; with each its index among the rows asked for."""
        order = np.lexsort((places, files))
        for number in np.unique(files).tolist():
            own = order[files[order] == number]
            yield from zip(own.tolist(), self.originals(number, places[own].tolist()), strict=True)

    def made(self, rows: Rows, originals: Sequence[Fields]) -> list[Record]:
        """The records of rows from their fields.

        Raises:
            DataError: one isn't what it was in the pass.
        """
        maker = RecordMaker(self.spec)
        found = []
        for row, record_id, fields in zip(rows, self.ids(rows), originals, strict=True):
            record = maker(fields) if isinstance(fields, dict) else None
            bare = record_id.rpartition("#")[0] if row["copy"] > 1 else record_id
            if record is None or record.record_id != bare:
                raise self._changed(int(row["file"]), int(row["at"]))
            found.append(record if bare == record_id else renamed(record, record_id))
        return found

    def place(self, file: int, at: int) -> str:
        """Where a record stands, in words."""
        return self.inputs[file].place(at)

    def originals(self, file: int, places: Sequence[int]) -> Iterator[Fields]:
        """The fields of rows of one file, at ascending places."""
        rows = self.inputs[file].again(places)
        for wanted in places:
            at, fields = next(rows, (-1, {}))
            if at != wanted or isinstance(fields, DataError):
                raise self._changed(file, wanted)
            yield fields

    def _changed(self, file: int, at: int) -> DataError:
        return DataError(
            f"source {self.spec.label!r}: {self.place(file, at)}: isn't what it was when the source was read; "
            "run again when its files are complete"
        )


def renamed(record: Record, record_id: str) -> Record:
    """The record under another id."""
    return replace(record, record_id=record_id)


def scan_source(spec: SourceSpec, data_dir: Path, *, selection_seed: int) -> Scan:
    """Read a source whole, once.

    Args:
        spec: what the recipe says of it.
        data_dir: the directory below which relative paths lie.
        selection_seed: seed of the keys under which the table is ordered.

    Raises:
        DataError: a file is missing, torn, of an unknown kind or changed while it was read; a row can't be used and
            isn't to be skipped (its file and line are named); or no record is left.
    """
    scan = Scan(spec=spec, inputs=inputs_of(spec, data_dir), selection_seed=selection_seed)
    files = []
    for number, given in enumerate(scan.inputs):
        _take(scan, number, given)
        files.append(given.bound())
    scan.files = tuple(files)
    if not scan.table.count:
        raise DataError(
            f"source {spec.label!r}: no records in {spec.hub or ', '.join(spec.paths)}"
            f" ({counted(scan.read, 'row')} read, {scan.filtered} filtered out, {scan.skipped} skipped)"
        )
    return scan


def _take(scan: Scan, number: int, given: Input) -> None:
    """Put the rows of one input into the table."""
    spec, add = scan.spec, scan.table.add
    name, key = RecordMaker(spec).name, order_keys("selection", scan.selection_seed, spec.label)
    check = _check_unnumbered if spec.duplicates == "keep" and spec.id_field is not None else None
    for at, fields in given.rows():
        scan.read += 1
        try:
            if isinstance(fields, DataError):
                raise fields
            named = name(fields)
        except DataError as error:
            _skip(scan, lambda at=at: given.place(at), error)  # type: ignore[misc]
            continue
        if named is None:
            scan.filtered += 1
            continue
        text, prompt, own, answer = named
        if own is None:
            add(key(text.hex()), text, prompt, at, number, answer, None)
            continue
        if check is not None:
            check(spec.label, own, given, at)
        add(key(own), text, prompt, at, number, answer, own.encode())


def _skip(scan: Scan, place: Callable[[], str], error: DataError) -> None:
    if scan.spec.on_error == "refuse":
        raise DataError(f"source {scan.spec.label!r}: {place()}: {error}") from error
    scan.skipped += 1
    if len(scan.skipped_examples) < _EXAMPLES:
        scan.skipped_examples.append(f"{place()}: {error}")


def _check_unnumbered(label: str, own_id: str, given: Input, at: int) -> None:
    if _NUMBERED.search(own_id):
        raise DataError(
            f"source {label!r}: {given.place(at)}: the id {own_id!r} looks like a copy's; drop `keep` or `id_field`"
        )

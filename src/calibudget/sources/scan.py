"""The one pass over a source: every row read, named, counted and put into its table; nothing of it stays in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError
from calibudget.keys import digest_keys, order_keys
from calibudget.messages import counted
from calibudget.records import Record, SourceFile
from calibudget.sources.field_meanings import known, meaning
from calibudget.sources.identity import digests
from calibudget.sources.identity_index import Identities, IdentityStream, Tally, column
from calibudget.sources.identity_table import ROW, IdentityTable, Rows
from calibudget.sources.inputs import Input, inputs_of
from calibudget.sources.json_files import Fields
from calibudget.sources.reading_workers import Readers
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split_names import listed

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERED: Final = re.compile(r"#[0-9]+$")


@dataclass(slots=True, kw_only=True)
class Scan:
    """A source after its pass.

    Attributes:
        spec: what the recipe says of it.
        inputs: what it was read from.
        files_not_read: names of files that lie beside those, where its paths lead.
        selection_seed: seed of the keys in the table.
        table: one row a record.
        files: every file read, bound by its bytes; for a hub data set its name and the digest of its rows.
        tally: what became of its rows.
    """

    spec: SourceSpec
    inputs: tuple[Input, ...]
    files_not_read: tuple[str, ...]
    selection_seed: int
    table: IdentityTable = field(default_factory=IdentityTable)
    files: tuple[SourceFile, ...] = ()
    tally: Tally = field(default_factory=Tally)

    def ids(self, rows: Rows) -> list[str]:
        """The record ids of rows."""
        copies = rows["copy"].tolist()
        if self.spec.id_field is None:
            names = rows["text"].tobytes().hex()
            bare = [names[start : start + 64] for start in range(0, len(names), 64)]
        else:
            bare = [self.table.name(offset) for offset in rows["name"].tolist()]
        if not rows["copy"].any():
            return bare
        return [one if copy < 2 else f"{one}#{copy}" for one, copy in zip(bare, copies, strict=True)]

    def keys(self, role: str, seed: int, rows: Rows) -> Rows:
        """The keys of rows under a role, 32 bytes each."""
        if self.spec.id_field is None and not rows["copy"].any():
            found = digest_keys(role, seed, self.spec.label)(rows["text"].tobytes())
        else:
            found = b"".join(map(order_keys(role, seed, self.spec.label), self.ids(rows)))
        return np.frombuffer(found, dtype="V32")

    def records(self, rows: Rows) -> list[Record]:
        """The records of rows, read again."""
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
        """The records of rows from their fields."""
        maker = RecordMaker(self.spec)
        found = []
        for row, record_id, fields in zip(rows, self.ids(rows), originals, strict=True):
            record = maker(fields) if isinstance(fields, dict) else None
            bare = record_id.rpartition("#")[0] if row["copy"] > 1 else record_id
            if record is None or record.record_id != bare or not self._is_text(record, row):
                raise self._changed(int(row["file"]), int(row["at"]))
            found.append(record if bare == record_id else replace(record, record_id=record_id))
        return found

    def _is_text(self, record: Record, row: np.void) -> bool:
        """Whether a record has a row's text, which an id of its own doesn't tell."""
        if self.spec.id_field is None:
            return True
        text, _ = digests(record.prompt, record.completion, record.tools)
        return bool(row["text"].tobytes() == text)

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
            f"{self.spec.name}: {self.place(file, at)}: isn't what it was when the source was read; "
            "run again when its files are complete"
        )


def scan_sources(
    specs: Iterable[SourceSpec], data_dir: Path, *, selection_seed: int, readers: Readers
) -> Iterator[Scan]:
    """Read sources whole, each once, and all at a time as far as there are readers.

    Raises:
        DataError: a file is missing, torn, of an unknown kind or changed while it was read; a row can't be used and
            isn't to be skipped (its file and line are named); or no record is left.
    """
    scans = [
        Scan(spec=spec, inputs=inputs, files_not_read=beside, selection_seed=selection_seed)
        for spec in specs
        for inputs, beside in [inputs_of(spec, data_dir)]
    ]
    asked = [[readers.ask(scan.spec, given) for given in scan.inputs] for scan in scans]
    for scan, waiting in zip(scans, asked, strict=True):
        scan.files = tuple(_take(scan, number, found()) for number, found in enumerate(waiting))
        if not scan.table.count:
            why = "name files that hold rows"
            if scan.tally.skipped:
                reason, rows = next(iter(scan.tally.skips.items()))
                why = f"the first one skipped: {rows.first}: {reason}"
            elif scan.tally.filtered:
                why = "`where` names values that no row has"
            raise DataError(
                f"{scan.spec.name}: no records in {scan.spec.hub or ', '.join(scan.spec.paths)}"
                f" ({counted(scan.tally.read, 'row')} read, {scan.tally.filtered} filtered out,"
                f" {scan.tally.skipped} skipped); {why}"
            )
        _check_left_out(scan)
        yield scan


def _check_left_out(scan: Scan) -> None:
    """Refuse a field that the recipe leaves out and that no row has; one of media may stand for a token in a text."""
    seen = scan.tally.fields
    for name in sorted(scan.spec.ignored) if scan.tally.saw_all else ():
        if name[:100] not in seen and name not in map(known, seen) and meaning(name) != "media":
            near = get_close_matches(name, seen) or seen
            raise DataError(
                f"{scan.spec.name}: `columns: {{{name}: null}}` leaves out a field that no row has; "
                f"there {'is' if len(near) == 1 else 'are'} {listed(near)}"
            )


def _take(scan: Scan, number: int, found: Identities | IdentityStream) -> SourceFile:
    """Put the identities of one input into the table, and say what it was."""
    try:
        for batch in found.batches():
            _add(scan, number, batch)
    finally:
        found.forget()
    scan.tally.add(found.tally)
    return found.input


def _add(scan: Scan, number: int, batch: pa.RecordBatch) -> None:
    rows = np.zeros(len(batch), dtype=ROW)
    for name, dtype in {"text": "V32", "prompt": "V32", "at": "<i8", "answer": "i1"}.items():
        rows[name] = column(batch, name, dtype)
    rows["file"] = number
    if scan.spec.id_field is None:
        rows["name"], rows["key"] = -1, scan.keys("selection", scan.selection_seed, rows)
    else:
        own_ids = batch["own_id"].to_pylist()
        _check_unnumbered(scan, number, own_ids, rows)
        keys = map(order_keys("selection", scan.selection_seed, scan.spec.label), own_ids)
        rows["name"], rows["key"] = scan.table.add_names(own_ids), np.frombuffer(b"".join(keys), dtype="V32")
    scan.table.add_rows(rows)


def _check_unnumbered(scan: Scan, number: int, own_ids: Sequence[str], rows: Rows) -> None:
    """Refuse own ids that a copy could have, where copies get ids."""
    for own_id, at in zip(own_ids, rows["at"].tolist(), strict=True) if scan.spec.duplicates == "keep" else ():
        if _NUMBERED.search(own_id):
            raise DataError(
                f"{scan.spec.name}: {scan.place(number, at)}: the id {own_id!r} looks like a copy's; drop "
                "`keep` or `id_field`"
            )

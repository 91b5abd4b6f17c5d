"""Records of one source whose ids are equal: dropped, kept under numbered ids, or refused (docs/formats.md).

What decides between equal records are the canonical bytes of their original fields, so nothing depends on the order
read. Memory holds some 30 bytes for each record that has an equal one, and the originals of those go through a file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError, InputError
from calibudget.hardware import temporary_folder
from calibudget.records import Record
from calibudget.sources.file_formats import flat
from calibudget.sources.identity_table import IdentityTable, Rows, same_as_before, writing
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.scan import Scan
from calibudget.store.canonical import canonical_json, plain_json

_IN_MEMORY: Final = 16 * 2**20
#: A record that has an equal one: its part of the table, its place in it, its group, and where it stands.
_TWIN: Final = np.dtype([("part", "<u4"), ("index", "<u4"), ("group", "<u4"), ("file", "<u4"), ("at", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A source with unique ids."""

    scan: Scan
    table: IdentityTable
    removed: Mapping[int, NDArray[np.int64]]
    duplicates: int

    @property
    def count(self) -> int:
        """Records that stay."""
        return self.table.count - self.dropped

    @property
    def dropped(self) -> int:
        """Records that left as duplicates; renamed ones stay."""
        return sum(len(rows) for rows in self.removed.values())

    def parts(self) -> Iterator[Rows]:
        """The records that stay, in the order of their "selection" keys."""
        for number, rows in enumerate(self.table.parts()):
            yield np.delete(rows, self.removed[number]) if number in self.removed else rows

    def place_of(self, record_id: str) -> str | None:
        """Where the record with that id stands, in words; None where none of those that stay is it."""
        for rows in self.parts():
            ids = self.scan.ids(rows)
            if record_id in ids:
                row = rows[ids.index(record_id)]
                return f"{self.scan.spec.name}: {self.scan.place(int(row['file']), int(row['at']))}"
        return None

    def again(self) -> Iterator[Record]:
        """The records once more, in the order of files and rows, those among them that left as duplicates.

        Raises:
            DataError: at the end of a file that isn't what it was in the pass.
        """
        maker = RecordMaker(self.scan.spec)
        for given, file in zip(self.scan.inputs, self.scan.files, strict=True):
            for _, fields in flat(given.blocks()):
                try:
                    record = maker(fields) if isinstance(fields, dict) else None
                except DataError:  # skipped in the pass, too
                    continue
                if record is not None:
                    yield record
            if given.bound() != file:
                raise DataError(f"{self.scan.spec.name}: {file.name}: changed while it was read; run again")


def resolve_duplicates(scan: Scan) -> Resolved:
    """Make the ids of a source unique.

    Of records with one id, `drop` keeps the one whose original fields have the smallest canonical bytes; `keep`
    puts them in that order, leaves the first its id and gives the n-th `#n`. Neither depends on the order read.

    Raises:
        DataError: records with one id of their own but different text, or `refuse` and there is a duplicate.
    """
    twins = _twins(scan)
    if not len(twins):
        return Resolved(scan=scan, table=scan.table, removed={}, duplicates=0)
    rank = _ranks(scan, twins)
    later = twins[rank > 1]
    removed = {
        int(part): np.sort(later["index"][later["part"] == part]).astype(np.int64) for part in np.unique(later["part"])
    }
    dropped = Resolved(scan=scan, table=scan.table, removed=removed, duplicates=len(later))
    return dropped if scan.spec.duplicates == "drop" else _renamed(dropped, later, rank[rank > 1])


def _twins(scan: Scan) -> NDArray[Any]:
    """Every record that has an equal one, group by group, in the order read within a group."""
    found: list[NDArray[Any]] = []
    faults: list[tuple[tuple[int, int], str]] = []
    groups = 0
    for part, rows in enumerate(scan.table.parts()):
        same = same_as_before(rows["key"])
        members = same.copy()
        members[:-1] |= same[1:]
        index = np.flatnonzero(members)
        if not len(index):
            continue
        own = rows[index]
        twins = np.empty(len(index), dtype=_TWIN)
        twins["part"], twins["index"], twins["file"], twins["at"] = part, index, own["file"], own["at"]
        twins["group"] = np.cumsum(~same[index]) - 1 + groups
        groups = int(twins["group"][-1]) + 1
        faults += _faults(scan, own, twins)
        found.append(twins)
    if faults:
        raise DataError(min(faults)[1])
    return np.concatenate(found) if found else np.empty(0, dtype=_TWIN)


def _faults(scan: Scan, own: Rows, twins: NDArray[Any]) -> list[tuple[tuple[int, int], str]]:
    """What can't be resolved in one part: of its earliest group alone, with where that begins."""
    starts = np.flatnonzero(np.diff(twins["group"], prepend=-1))
    first = np.repeat(starts, np.diff([*starts, len(twins)]))
    unlike = own["text"] != own["text"][first]
    if scan.spec.duplicates == "refuse":
        starts = starts[np.lexsort((twins["at"][starts], twins["file"][starts]))][:1]
    else:
        starts = np.unique(first[unlike])
    return [_fault(scan, own, twins, int(start), unlike) for start in starts]


def _fault(
    scan: Scan, own: Rows, twins: NDArray[Any], start: int, unlike: NDArray[np.bool_]
) -> tuple[tuple[int, int], str]:
    group = np.flatnonzero(twins["group"] == twins["group"][start])
    other = next((int(index) for index in group if unlike[index]), int(group[1]))
    begins = (int(twins["file"][start]), int(twins["at"][start]))
    one, two = scan.place(*begins), scan.place(int(twins["file"][other]), int(twins["at"][other]))
    source = scan.spec.name
    if unlike[other]:
        (name,) = scan.ids(own[start : start + 1])
        return begins, f"{source}: {one} and {two} have the id {name!r} but different text"
    return begins, f"{source}: {two} repeats {one}; remove one, or say `duplicates: drop` or `keep`"


def _ranks(scan: Scan, twins: NDArray[Any]) -> NDArray[np.int64]:
    """The place, from 1, of each record among its equals, by the canonical bytes of the original fields."""
    ends = np.zeros((len(twins), 2), dtype=np.int64)
    order = np.lexsort((twins["at"], twins["file"]))
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        for file in np.unique(twins["file"]).tolist():
            own = order[twins["file"][order] == file]
            for index, fields in zip(own, scan.originals(file, twins["at"][own].tolist()), strict=True):
                data = _order_bytes(fields)
                ends[index] = spool.tell(), spool.tell() + len(data)
                with writing(temporary_folder()):
                    spool.write(data)

        def original(index: int) -> bytes:
            spool.seek(ends[index, 0])
            return spool.read(ends[index, 1] - ends[index, 0])

        ranks = np.empty(len(twins), dtype=np.int64)
        starts = np.flatnonzero(np.diff(twins["group"], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(twins)], strict=True):
            ranks[sorted(range(start, end), key=original)] = np.arange(1, end - start + 1)
    return ranks


def _renamed(dropped: Resolved, later: NDArray[Any], ranks: NDArray[np.int64]) -> Resolved:
    """The records with their copies, each copy under its own id and key."""
    scan = dropped.scan
    table = IdentityTable()
    for part, rows in enumerate(scan.table.parts()):
        table.add_rows(np.delete(rows, dropped.removed[part]) if part in dropped.removed else rows)
        if part in dropped.removed:
            mine = later["part"] == part
            copies = rows[later["index"][mine]].copy()
            copies["copy"] = ranks[mine]
            copies["key"] = scan.keys("selection", scan.selection_seed, copies)
            table.add_rows(copies)
    return Resolved(scan=scan, table=table, removed={}, duplicates=dropped.duplicates)


def _order_bytes(fields: object) -> bytes:
    """The canonical bytes of the original fields; what RFC 8785 can't write (long integers) in a form as fixed."""
    plain = plain_json(fields)
    try:
        return canonical_json(plain)
    except InputError:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")

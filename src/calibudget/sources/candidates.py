"""The candidates of a source in the order of the draw: ids at hand, records read again when they are asked for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from calibudget.records import Record
from calibudget.sequences import MadeOnDemand
from calibudget.sources.identity_table import PARTS, ROW, Rows, Scratch
from calibudget.sources.json_files import Fields
from calibudget.sources.scan import Scan

#: Rows that are held in memory; more of them lie in a file.
_HELD: Final = 65_536
#: Records that are made at a time, or one of `PARTS` parts of the pool if that is more.
_CHUNK: Final = 16_384
#: Bytes of fields that are held before they are written.
_WAITING: Final = 16 * 2**20
_ROWS: Final = "rows"


class RowFile:
    """Rows in a fixed order: in memory while they are few, else in a file of the temporary directory."""

    def __init__(self) -> None:
        self._held: list[Rows] = []
        self._scratch: Scratch | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: Rows) -> None:
        """Add rows at the end."""
        self._count += len(rows)
        self._held.append(rows)
        if self._scratch is not None or self._count > _HELD:
            self._scratch = self._scratch or Scratch()
            self._scratch.append(_ROWS, b"".join(held.tobytes() for held in self._held))
            self._held = []

    def read(self, start: int, stop: int) -> Rows:
        """The rows from start to stop - 1."""
        if self._scratch is None:
            self._held = [np.concatenate(self._held) if self._held else np.empty(0, dtype=ROW)]
            return self._held[0][start:stop]
        size = max(0, stop - start) * ROW.itemsize
        return np.frombuffer(self._scratch.read(_ROWS, start * ROW.itemsize, size), dtype=ROW)

    def chunks(self, size: int) -> Iterator[Rows]:
        """All rows, so many at a time."""
        for start in range(0, self._count, size):
            yield self.read(start, min(start + size, self._count))


class CandidatePool(MadeOnDemand[Record]):
    """A source's candidates in key order.

    Going through it reads the source again, once: what doesn't fit in memory waits in files for its
    turn. Memory holds 20 bytes a candidate meanwhile, and one of `PARTS` parts of the records.
    """

    def __init__(self, scan: Scan, rows: RowFile) -> None:
        super().__init__(len(rows), lambda start, stop: scan.records(rows.read(start, stop)))
        self._scan, self._rows = scan, rows
        #: The ids, in key order.
        self.ids = MadeOnDemand(len(rows), lambda start, stop: scan.ids(rows.read(start, stop)))

    def __iter__(self) -> Iterator[Record]:
        size = max(_CHUNK, -(-len(self) // PARTS))
        if len(self) <= size:
            yield from self._scan.records(self._rows.read(0, len(self)))
            return
        waiting = self._by_turn(size)
        for turn, rows in enumerate(self._rows.chunks(size)):
            originals: list[Fields] = [{}] * len(rows)
            for line in waiting.lines(f"{turn:03d}"):
                index, originals[index] = json.loads(line)
            yield from self._scan.made(rows, originals)

    def _by_turn(self, size: int) -> Scratch:
        """The fields of every candidate with its place in its turn, in one file a turn, as the source gives them."""
        columns = [(rows["file"].copy(), rows["at"].copy()) for rows in self._rows.chunks(_HELD)]
        files, places = (np.concatenate(column) for column in zip(*columns, strict=True))
        scratch, pending, held = Scratch(), defaultdict[int, list[bytes]](list), 0
        for index, fields in self._scan.again(files, places):
            turn, own = divmod(index, size)
            line = json.dumps([own, fields]).encode("ascii") + b"\n"
            pending[turn].append(line)
            held += len(line)
            if held > _WAITING:
                _write(scratch, pending)
                held = 0
        _write(scratch, pending)
        return scratch

    def answers(self, labels: Sequence[str]) -> Mapping[str, int]:
        """How many candidates have each label as their answer; labels without one are left out."""
        counts = np.zeros(len(labels), dtype=np.int64)
        for rows in self._rows.chunks(_HELD):
            answer = rows["answer"]
            counts += np.bincount(answer[answer >= 0], minlength=len(labels))
        return {label: int(count) for label, count in zip(labels, counts, strict=True) if count}

    def chunks(self) -> Iterator[Rows]:
        """The candidates' rows, chunk by chunk in key order."""
        return self._rows.chunks(_HELD)

    def chosen(self, ids: Collection[str]) -> dict[str, Record]:
        """The candidates with these ids, read again."""
        wanted = frozenset(ids)
        found: list[Rows] = []
        left = len(wanted)
        for rows in self._rows.chunks(_HELD):
            if not left:
                break
            index = [place for place, one in enumerate(self._scan.ids(rows)) if one in wanted]
            left -= len(index)
            found.append(rows[index])
        if not found:
            return {}
        return {record.record_id: record for record in self._scan.records(np.concatenate(found))}


def _write(scratch: Scratch, pending: defaultdict[int, list[bytes]]) -> None:
    for turn, lines in pending.items():
        scratch.append(f"{turn:03d}", b"".join(lines))
    pending.clear()


def chosen_records(pool: Sequence[Record], ids: Collection[str]) -> Mapping[str, Record]:
    """The records of a pool that have these ids, whether it is a `CandidatePool` or plain records."""
    if isinstance(pool, CandidatePool):
        return pool.chosen(ids)
    wanted = frozenset(ids)
    return {record.record_id: record for record in pool if record.record_id in wanted}

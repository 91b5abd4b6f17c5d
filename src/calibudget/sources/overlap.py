"""Which digests several sets hold: one pass over each set, parted on disk, so that memory doesn't grow with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.sources.scratch import Scratch
from calibudget.sources.table import BUFFER, PARTS, Rows, same_as_before, sorted_rows

_HELD: Final = np.dtype([("key", "V32"), ("set", "<u4")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some of the different digests, and how often each set holds each.

    Attributes:
        digests: shape (n,), 32 bytes each, ascending.
        counts: shape (n, sets), int64, sets in the order given.
    """

    digests: Rows
    counts: NDArray[np.int64]


def groups(sets: Iterable[Iterable[Rows]]) -> Iterator[Group]:
    """Every different digest of some sets, ascending.

    Memory holds `BUFFER` digests, or one of `PARTS` parts of all, whichever is more.

    Args:
        sets: of each set its digests, shape (m,), 32 bytes each, piece by piece.
    """
    held = _Held()
    number = 0
    for number, pieces in enumerate(sets, start=1):
        for piece in pieces:
            held.add(piece, number - 1)
    for rows in held.parts():
        first = ~same_as_before(rows["key"])
        group = np.cumsum(first) - 1
        size = int(first.sum())
        counts = np.bincount(group * number + rows["set"], minlength=size * number)
        yield Group(digests=rows["key"][first], counts=counts.reshape(size, number))


class _Held:
    """Digests and who holds them."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._pending: list[NDArray[Any]] = []
        self._count = 0
        self._parts: set[int] = set()

    def add(self, digests: Rows, number: int) -> None:
        rows = np.empty(len(digests), dtype=_HELD)
        rows["key"], rows["set"] = digests, number
        self._pending.append(rows)
        self._count += len(rows)
        if self._count >= BUFFER:
            self._flush()

    def parts(self) -> Iterator[NDArray[Any]]:
        if self._parts:
            self._flush()
        elif self._count:
            yield sorted_rows(np.concatenate(self._pending))
        for number in sorted(self._parts):
            yield sorted_rows(np.fromfile(self._scratch.path(f"{number:03d}"), dtype=_HELD))

    def _flush(self) -> None:
        rows = np.concatenate([np.empty(0, dtype=_HELD), *self._pending])
        self._pending, self._count = [], 0
        lead = rows.view(np.uint8).reshape(len(rows), _HELD.itemsize)[:, 0]
        order = np.argsort(lead, kind="stable")
        ends = np.searchsorted(lead[order], np.arange(PARTS + 1))
        for number in np.flatnonzero(np.diff(ends)).tolist():
            self._scratch.append(f"{number:03d}", rows[order[ends[number] : ends[number + 1]]].tobytes())
            self._parts.add(number)


def shared_counts(found: Iterable[Group], sets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What sets share.

    Returns:
        How many members of each set have a digest that each set holds, shape (sets, sets); and how many repeat an
        earlier digest of their own set, shape (sets,).
    """
    shared = np.zeros((sets, sets), dtype=np.int64)
    repeated = np.zeros(sets, dtype=np.int64)
    for group in found:
        there = (group.counts > 0).astype(np.int64)
        shared += group.counts.T @ there
        repeated += (group.counts - there).sum(axis=0)
    return shared, repeated


def shared_digests(
    found: Iterable[Group], pairs: Mapping[int, Iterable[int]]
) -> dict[int, dict[int, frozenset[bytes]]]:
    """The digests that sets share with others; memory holds those and no more.

    Args:
        found: what the sets hold.
        pairs: by number of a set, the numbers of the others.

    Returns:
        By set and other set; empty ones are left out.
    """
    digests: dict[int, dict[int, set[bytes]]] = {one: {} for one in pairs}
    for group in found:
        there = group.counts > 0
        for one, others in pairs.items():
            for other in others:
                both = group.digests[there[:, one] & there[:, other]]
                if len(both):
                    digests[one].setdefault(other, set()).update(both.tolist())
    return {one: {other: frozenset(own) for other, own in by.items()} for one, by in digests.items()}

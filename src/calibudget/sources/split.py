"""The calibration split, and which records may have which role."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from calibudget.errors import DataError, InputTypeError
from calibudget.keys import order_keys
from calibudget.messages import counted, shown
from calibudget.records import Split
from calibudget.sources.duplicates import Resolved
from calibudget.sources.pool import CandidatePool, RowFile
from calibudget.sources.source import SourceRead
from calibudget.sources.table import ROW, Rows, among, smallest, sorted_rows

_ROLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What earlier rounds have used of a source, as record ids.

    Attributes:
        held_out: records that stay out altogether.
        calibration: records that calibrate again; empty to draw others.
        trained: records that a model was trained on: neither they nor others with their prompts calibrate.
        used_up: candidates that may not be drawn again.
    """

    held_out: frozenset[str] = frozenset()
    calibration: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()
    used_up: frozenset[str] = frozenset()


def split_source(read: SourceRead, *, split_seed: int, selection_seed: int, calibration_size: int) -> Split:
    """`part_source` for a source that is in memory whole, in a first round.

    Args:
        read: the source.
        split_seed: seed of the "calibration" key.
        selection_seed: seed of the "selection" key that orders the candidates.
        calibration_size: records to hold out, 0 for none.

    Raises:
        DataError: the source has fewer distinct records than that.
    """
    distinct = [record for record in read.records if record.record_id not in read.copies]
    if len(distinct) < calibration_size:
        raise DataError(_too_few(read.label, calibration_size, len(distinct), read))
    draw = order_keys("calibration", split_seed, read.label)
    calibration = heapq.nsmallest(calibration_size, distinct, key=lambda record: draw(record.record_id))
    prompts = {record.prompt_hash for record in calibration}
    pool = [record for record in read.records if record.prompt_hash not in prompts]
    pick = order_keys("selection", selection_seed, read.label)
    return Split(
        source=read.label,
        calibration=tuple(calibration),
        candidates=tuple(sorted(pool, key=lambda record: pick(record.record_id))),
        read=read.read - read.filtered,
        duplicates=read.duplicates,
        skipped=read.skipped,
        shared_prompts=len(read.records) - len(pool) - len(calibration),
        filtered=read.filtered,
        columns_not_used=read.columns_not_used,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """What may neither calibrate nor be drawn.

    Attributes:
        prompts: prompt hashes.
        texts: digests of whole texts.
        reasons: why, in words, each with the column and the digests that left for it; one digest may have several.
    """

    prompts: frozenset[bytes] = frozenset()
    texts: frozenset[bytes] = frozenset()
    reasons: Mapping[str, tuple[str, frozenset[bytes]]] = field(default_factory=dict)


def part_source(
    source: Resolved,
    *,
    split_seed: int,
    calibration_size: int,
    earlier: Earlier | None = None,
    barred: Barred | None = None,
    skipped: frozenset[bytes] = frozenset(),
) -> Split:
    """Part a source into its calibration split and its candidate pool.

    The calibration split is the first `calibration_size` distinct records in the order of the "calibration" key;
    then every other record whose prompt hash is that of a calibration record leaves the pool and is counted.

    Under `duplicates: keep` only the record with the bare id can calibrate, so the split holds exactly
    `calibration_size` different examples; its numbered copies have the same prompt, so they leave the pool with
    it and are counted in `shared_prompts`. All records of one id thus serve one role or none.

    Args:
        source: the source, its ids unique.
        split_seed: seed of the "calibration" key.
        calibration_size: records to hold out, 0 for none.
        earlier: what earlier rounds have used; None in a first round.
        barred: records that leave before anything is drawn, and are counted.
        skipped: digests of the texts that `on_error: skip` leaves out likewise.

    Raises:
        DataError: the source has fewer distinct records than that, or lacks one that is to calibrate again.
    """
    scan, earlier = source.scan, earlier or Earlier()
    parting = _Parting(source, earlier, barred or Barred(), skipped)
    rows = parting.draw(split_seed, calibration_size)
    candidates, usable, fresh = parting.pool(rows)
    left = source.count - parting.barred_count - parting.skipped_count - usable + fresh - len(candidates)
    return Split(
        source=scan.spec.label,
        calibration=tuple(scan.records(rows)),
        candidates=CandidatePool(scan, candidates),
        read=scan.read - scan.filtered,
        duplicates=source.duplicates,
        skipped=scan.skipped + parting.skipped_count,
        shared_prompts=usable - fresh - len(rows),
        spent=left,
        filtered=scan.filtered,
        barred=parting.barred_count,
        columns_not_used=tuple(scan.tally.columns_not_used),
    )


class _Parting:
    """The two passes over a source's table: one draws, one fills the pool."""

    def __init__(self, source: Resolved, earlier: Earlier, barred: Barred, skipped: frozenset[bytes]) -> None:
        self._source = source
        self._barred, self._skipped = barred, skipped
        self.barred_count = self.skipped_count = 0
        key = order_keys("selection", source.scan.selection_seed, source.scan.spec.label)
        self._earlier = earlier
        self._held_out = _keys(key, earlier.held_out - earlier.calibration)
        self._calibration = _keys(key, earlier.calibration)
        self._trained = _keys(key, earlier.trained)
        self._used_up = _keys(key, earlier.used_up)

    def draw(self, split_seed: int, size: int) -> Rows:
        """The calibration records' rows, in key order; their `key` is that of this draw."""
        scan = self._source.scan
        size = len(self._calibration) or size
        barred = self._trained_prompts() if not self._calibration else frozenset()
        first = np.empty(0, dtype=ROW)
        distinct = left_out = 0
        for rows in self._usable() if size else ():
            some = rows[rows["copy"] < 2]
            if self._calibration:
                some = some[among(some["key"], self._calibration)]
            elif barred:
                is_barred = among(some["prompt"], barred)
                left_out += int(is_barred.sum())
                some = some[~is_barred]
            distinct += len(some)
            some["key"] = scan.keys("calibration", split_seed, some)
            first = sorted_rows(np.concatenate([first, smallest(some, size)]))[:size]
        if self._calibration and distinct < size:
            raise DataError(self._gone(first))
        if distinct < size:
            left = self._left() | {"with a prompt of an earlier round's training": left_out}
            raise DataError(_too_few(scan.spec.label, size, distinct, self._source, left))
        return first

    def pool(self, drawn: Rows) -> tuple[RowFile, int, int]:
        """The candidates; how many records were usable; and how many of them have no calibration record's prompt."""
        prompts = frozenset(drawn["prompt"].tolist())
        candidates = RowFile()
        usable = fresh = 0
        for rows in self._usable():
            usable += len(rows)
            own = rows[~among(rows["prompt"], prompts)]
            fresh += len(own)
            candidates.append(own[~among(own["key"], self._used_up)] if self._used_up else own)
        return candidates, usable, fresh

    def _usable(self) -> Iterator[Rows]:
        self.barred_count = self.skipped_count = 0
        for rows in self._source.parts():
            out = among(rows["prompt"], self._barred.prompts) | among(rows["text"], self._barred.texts)
            self.barred_count += int(out.sum())
            rows = rows[~out] if out.any() else rows
            if self._skipped:
                skipped = among(rows["text"], self._skipped)
                self.skipped_count += int(skipped.sum())
                rows = rows[~skipped]
            yield rows[~among(rows["key"], self._held_out)] if self._held_out else rows

    def _left(self) -> dict[str, int]:
        """How many records left before the draw, by reason; a record that has two is counted under both."""
        left = dict.fromkeys(self._barred.reasons, 0)
        held_out = 0
        for rows in self._source.parts():
            for reason, (column, digests) in self._barred.reasons.items():
                left[reason] += int(among(rows[column], digests).sum())
            held_out += int(among(rows["key"], self._held_out).sum())
        return {**left, "held out by an earlier round": held_out}

    def _trained_prompts(self) -> frozenset[bytes]:
        if not self._trained:
            return frozenset()
        parts = (rows[among(rows["key"], self._trained)] for rows in self._source.parts())
        return frozenset(prompt for rows in parts for prompt in rows["prompt"].tolist())

    def _gone(self, found: Rows) -> str:
        there = set(self._source.scan.ids(found))
        gone = self._earlier.calibration - there
        whole = counted(len(self._earlier.calibration), "calibration record")
        return (
            f"source {self._source.scan.spec.label!r}: its data lacks {len(gone)} of the {whole} of the earlier rounds "
            f"(the first: {min(gone)}); say `rounds.calibration: fresh` to draw others"
        )


class _Counted(Protocol):
    """What was counted while a source was read."""

    @property
    def read(self) -> int: ...
    @property
    def filtered(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def duplicates(self) -> int: ...


def _too_few(label: str, size: int, distinct: int, counts: _Counted, left: Mapping[str, int] | None = None) -> str:
    others = "".join(f", {count} {reason}" for reason, count in (left or {}).items() if count)
    return (
        f"source {label!r}: the calibration split needs {counted(size, 'record')} that differ, but there are only"
        f" {distinct} ({counts.read} read, {counts.filtered} filtered out, {counts.skipped} skipped,"
        f" {counted(counts.duplicates, 'duplicate')}{others})"
    )


def _keys(key: Callable[[str], bytes], ids: Collection[str]) -> frozenset[bytes]:
    return frozenset(map(key, ids))


def check_roles(roles: Mapping[str, Collection[str | int]]) -> None:
    """Check that no record has two roles (paper, appendix "Record and Role Integrity").

    Args:
        roles: by role name a list, a set, a numpy array of one dimension or another collection of record ids, all of
            them strings or all of them integers.

    Raises:
        DataError: no role at all, a name that is no lower-case identifier, a role without records, a record twice
            in one role or in two of them; names and the record are given.
        InputTypeError: something else than a mapping of such collections, an id that is neither a string nor an
            integer (a bool is none), or both kinds together.
    """
    if not isinstance(roles, Mapping):
        raise InputTypeError(f"roles are a mapping of names to record ids, not {type(roles).__name__}")
    if not roles:
        raise DataError("there are no roles to check")
    owners: dict[str | int, str] = {}
    for name, members in roles.items():
        if not isinstance(name, str) or not _ROLE_NAME.fullmatch(name):
            raise DataError(f"the role {name!r} must be a lower-case identifier: a letter, then letters, digits or _")
        ids = _role_ids(name, members)
        if not ids:
            raise DataError(f"the role {name!r} has no records")
        if owners and isinstance(ids[0], str) != isinstance(next(iter(owners)), str):
            raise InputTypeError(
                f"the role {name!r} and those before it hold strings and integers; ids are all of one kind"
            )
        for member in ids:
            other = owners.get(member)
            if other is not None:
                where = f"twice in the role {name!r}" if other == name else f"in the roles {other!r} and {name!r}"
                raise DataError(f"the record {member!r} is {where}")
            owners[member] = name


def _role_ids(name: str, members: object) -> list[str | int]:
    """A role's ids, numpy's integers as Python's."""
    is_array = isinstance(members, np.ndarray) and members.ndim == 1
    if not is_array and (not isinstance(members, Collection) or isinstance(members, str | bytes | bytearray | Mapping)):
        raise InputTypeError(f"the role {name!r} needs a collection of record ids, not {shown(members)}")
    ids: list[str | int] = []
    for member in members:  # type: ignore[attr-defined]
        plain = int(member) if isinstance(member, np.integer) else member
        if isinstance(plain, bool) or not isinstance(plain, str | int):
            raise InputTypeError(f"the role {name!r} holds {shown(member)}; a record id is a string or an integer")
        ids.append(plain)
    if len({isinstance(one, str) for one in ids}) > 1:
        raise InputTypeError(f"the role {name!r} holds strings and integers; record ids are all of one kind")
    return ids

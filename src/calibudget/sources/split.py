"""The calibration and evaluation splits, and which records may have which role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from calibudget.errors import DataError, InputTypeError
from calibudget.keys import order_keys
from calibudget.messages import counted, shown
from calibudget.records import Record, Split
from calibudget.sources.candidates import CandidatePool, RowFile
from calibudget.sources.duplicates import Resolved
from calibudget.sources.identity_table import ROW, Rows, among, smallest, sorted_rows, taken

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


class Parting:
    """A source on its way to its split: what is held out of it is drawn first, and then its pool is what is left.

    The calibration split is the first `calibration_size` distinct records in the order of the "calibration" key. The
    evaluation split is the first `evaluation_size` in the order of the "evaluation" key of those that don't have a
    calibration record's prompt, so that asking for one changes no calibration split. Every other record whose prompt
    hash is that of a calibration record leaves the pool, then those that are twins of evaluation records, and both are
    counted.

    Under `duplicates: keep` only the record with the bare id is held out, so a split holds exactly so many different
    examples; its numbered copies have the same prompt, so they leave the pool with it and are counted. All records of
    one id thus serve one role or none.

    Args:
        source: the source, its ids unique.
        earlier: what earlier rounds have used; None in a first round.
        barred: records that leave before anything is drawn, and are counted.
        skipped: digests of the texts that `on_error: skip` leaves out likewise.

    Attributes:
        evaluation: records of the evaluation split, ascending under the "evaluation" key.
    """

    def __init__(
        self,
        source: Resolved,
        *,
        earlier: Earlier | None = None,
        barred: Barred | None = None,
        skipped: frozenset[bytes] = frozenset(),
    ) -> None:
        self._source = source
        self._barred, self._skipped = barred or Barred(), skipped
        self._barred_count = self._skipped_count = 0
        self._earlier = earlier or Earlier()
        key = order_keys("selection", source.scan.selection_seed, source.scan.spec.label)
        self._held_out = _keys(key, self._earlier.held_out - self._earlier.calibration)
        self._calibration = _keys(key, self._earlier.calibration)
        self._trained = _keys(key, self._earlier.trained)
        self._used_up = _keys(key, self._earlier.used_up)
        self._calibrating = np.empty(0, dtype=ROW)
        self.evaluation: tuple[Record, ...] = ()

    def draw(self, *, split_seed: int, calibration_size: int, evaluation_size: int = 0) -> Self:
        """Draw the calibration and the evaluation split.

        Raises:
            DataError: the source has fewer distinct records than that, or lacks one that is to calibrate again.
        """
        size = len(self._calibration) or calibration_size
        barred = self._trained_prompts() if not self._calibration else frozenset()
        first, distinct, left_out = self._first("calibration", split_seed, size, barred)
        if self._calibration and distinct < size:
            raise DataError(self._gone(first))
        if distinct < size:
            left = self._left() | {"with a prompt of an earlier round's training": left_out}
            raise DataError(self._too_few("calibration", size, distinct, left))
        self._calibrating = first
        calibrating = frozenset(first["prompt"].tolist())
        drawn, distinct, left_out = self._first("evaluation", split_seed, evaluation_size, calibrating)
        if distinct < evaluation_size:
            left = self._left() | {"calibrating, or with a calibration record's prompt": left_out}
            raise DataError(self._too_few("evaluation", evaluation_size, distinct, left))
        self.evaluation = tuple(self._source.scan.records(drawn)) if len(drawn) else ()
        return self

    def _first(self, role: str, seed: int, size: int, barred: frozenset[bytes]) -> tuple[Rows, int, int]:
        """The first rows in key order, their `key` that of the role; how many there were, and how many were barred."""
        first = np.empty(0, dtype=ROW)
        distinct = left_out = 0
        for rows in self._usable() if size else ():
            some = taken(rows, np.flatnonzero(rows["copy"] < 2))
            if role == "calibration" and self._calibration:
                some = some[among(some["key"], self._calibration)]
            elif barred:
                is_barred = among(some["prompt"], barred)
                left_out += int(is_barred.sum())
                some = some[~is_barred]
            distinct += len(some)
            some["key"] = self._source.scan.keys(role, seed, some)
            first = sorted_rows(np.concatenate([first, smallest(some, size)]))[:size]
        return first, distinct, left_out

    def split(self, twins: Barred | None = None) -> Split:
        """The split: what was drawn, and the candidates.

        Args:
            twins: prompts and texts of evaluation records, of this source and others, and of what is like them.
        """
        scan, source = self._source.scan, self._source
        prompts = frozenset(self._calibrating["prompt"].tolist())
        candidates = RowFile()
        usable = fresh = alike = 0
        for rows in self._usable():
            usable += len(rows)
            own = taken(rows, np.flatnonzero(~among(rows["prompt"], prompts)))
            fresh += len(own)
            if twins is not None:
                like = among(own["prompt"], twins.prompts) | among(own["text"], twins.texts)
                alike += int(like.sum())
                own = own[~like]
            candidates.append(own[~among(own["key"], self._used_up)] if self._used_up else own)
        out = source.count - self._barred_count - self._skipped_count - usable
        return Split(
            source=self._label,
            calibration=tuple(scan.records(self._calibrating)),
            evaluation=self.evaluation,
            candidates=CandidatePool(scan, candidates),
            read=scan.tally.read - scan.tally.filtered,
            duplicates=source.duplicates,
            skipped=scan.tally.skipped + self._skipped_count,
            shared_prompts=usable - fresh - len(self._calibrating),
            evaluation_twins=alike - len(self.evaluation),
            spent=out + fresh - alike - len(candidates),
            barred=self._barred_count,
        )

    @property
    def _label(self) -> str:
        return self._source.scan.spec.label

    def _usable(self) -> Iterator[Rows]:
        self._barred_count = self._skipped_count = 0
        for rows in self._source.parts():
            out = among(rows["prompt"], self._barred.prompts) | among(rows["text"], self._barred.texts)
            self._barred_count += int(out.sum())
            rows = rows[~out] if out.any() else rows
            if self._skipped:
                skipped = among(rows["text"], self._skipped)
                self._skipped_count += int(skipped.sum())
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

    def _too_few(self, role: str, size: int, distinct: int, left: Mapping[str, int]) -> str:
        others = "".join(f", {count} {reason}" for reason, count in left.items() if count)
        way_out = "; ask for fewer (`evaluation.per_source`), or leave the source out" if role == "evaluation" else ""
        tally = self._source.scan.tally
        return (
            f"source {self._label!r}: the {role} split needs {counted(size, 'record')} that differ, but there are only"
            f" {distinct} ({tally.read} read, {tally.filtered} filtered out, {tally.skipped} skipped,"
            f" {counted(self._source.duplicates, 'duplicate')}{others}){way_out}"
        )

    def _gone(self, found: Rows) -> str:
        there = set(self._source.scan.ids(found))
        gone = self._earlier.calibration - there
        whole = counted(len(self._earlier.calibration), "calibration record")
        return (
            f"source {self._label!r}: its data lacks {len(gone)} of the {whole} of the earlier rounds "
            f"(the first: {min(gone)}); say `rounds.calibration: fresh` to draw others"
        )


def _keys(key: Callable[[str], bytes], ids: Collection[str]) -> frozenset[bytes]:
    return frozenset(map(key, ids))


def check_roles(roles: Mapping[str, Collection[str | int]]) -> None:
    """Check that no record has two roles (paper, appendix "Record and Role Integrity").

    Args:
        roles: by role name a collection of record ids, all of them strings or all of them integers.

    Raises:
        DataError: no role at all, a name that is no lower-case identifier, a role without records, a record twice
            in one role or in two of them; names and the record are given.
        InputTypeError: a text or a mapping in place of a collection, or strings and integers together.
    """
    if not roles:
        raise DataError("there are no roles to check")
    owners: dict[str | int, str] = {}
    for name, members in roles.items():
        if not _ROLE_NAME.fullmatch(name):
            raise DataError(f"the role {name!r} must be a lower-case identifier: a letter, then letters, digits or _")
        if isinstance(members, str | bytes | Mapping):
            raise InputTypeError(f"the role {name!r} needs a collection of record ids, not {shown(members)}")
        if not len(members):
            raise DataError(f"the role {name!r} has no records")
        for member in members:
            other = owners.setdefault(member, name)
            if isinstance(member, str) != isinstance(next(iter(owners)), str):
                raise InputTypeError(f"the role {name!r} holds {shown(member)}; ids are all strings or all integers")
            if other != name:
                raise DataError(f"the record {member!r} is in the roles {other!r} and {name!r}")
        if len(set(members)) != len(members):
            twice = next(member for member, count in Counter(members).items() if count > 1)
            raise DataError(f"the record {twice!r} is twice in the role {name!r}")

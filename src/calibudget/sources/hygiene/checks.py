"""What each check of the hygiene found in the sources, and the records that leave or are refused for it.

Which digests several sets hold is found in one pass over each, parted on disk, so that memory doesn't grow with them. A
check gives the digests (of prompts, or of whole texts) that a source shares with another set; what they are the
digests of is looked up in the source's table, in one pass. What a check found in texts is kept, so that they needn't be
read again (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter

from calibudget.errors import DataError
from calibudget.keys import canonical_array
from calibudget.records import Record, SourceFile
from calibudget.sources import cache_files
from calibudget.sources.cache_files import Kept, kept_or_made, kept_path
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.artefact import NAMED_IDS, Found
from calibudget.sources.identity import digests
from calibudget.sources.identity_index import said_of_rows
from calibudget.sources.identity_table import ROW, PartedRows, Rows, among, same_as_before
from calibudget.sources.spec import HygieneRules, SourceSpec
from calibudget.sources.split import Barred

_HELD: Final = np.dtype([("key", "V32"), ("set", "<u4")])
#: Counts in one group: 64 MiB.
_CELLS: Final = 2**23


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

    Memory holds `BUFFER` digests, or one of `PARTS` parts of all, whichever is more, and `_CELLS` counts.

    Args:
        sets: of each set its digests, shape (m,), 32 bytes each, piece by piece.
    """
    held = PartedRows(_HELD)
    number = 0
    for number, pieces in enumerate(sets, start=1):
        for piece in pieces:
            rows = np.empty(len(piece), dtype=_HELD)
            rows["key"], rows["set"] = piece, number - 1
            held.add_rows(rows)
    step = max(1, _CELLS // max(number, 1))
    for rows in held.parts():
        starts = np.flatnonzero(~same_as_before(rows["key"]))
        for place in range(0, len(starts), step):
            firsts = starts[place : place + step]
            some = rows[firsts[0] : starts[place + step] if place + step < len(starts) else len(rows)]
            group = np.searchsorted(firsts - firsts[0], np.arange(len(some)), side="right") - 1
            counts = np.bincount(group * number + some["set"], minlength=len(firsts) * number)
            yield Group(digests=rows["key"][firsts], counts=counts.reshape(len(firsts), number))


def shared_counts(found: Iterable[Group], sets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What sets share.

    Returns:
        How many members of each set have a digest that each set holds, shape (sets, sets); and how many repeat an
        earlier digest of their own set, shape (sets,).
    """
    shared = np.zeros((sets, sets), dtype=np.int64)
    repeated = np.zeros(sets, dtype=np.int64)
    for group in found:
        there = group.counts > 0
        shared[np.diag_indices(sets)] += group.counts.sum(axis=0)
        repeated += group.counts.sum(axis=0) - there.sum(axis=0)
        several = there.sum(axis=1) > 1
        met = group.counts[several].T.astype(np.float64) @ there[several]  # whole numbers far below 2^53
        np.fill_diagonal(met, 0)
        shared += met.astype(np.int64)
    return shared, repeated


def shared_digests(
    found: Iterable[Group], pairs: Mapping[int, Collection[int]]
) -> dict[int, dict[int, frozenset[bytes]]]:
    """The digests that sets share with others; memory holds those and no more.

    Only pairs that share a digest are looked at: of a thousand sets there are half a million.

    Returns:
        By set and other set; empty ones are left out.
    """
    digests: dict[int, dict[int, set[bytes]]] = {one: {} for one in pairs}
    for group in found:
        there = group.counts > 0
        several = there.sum(axis=1) > 1
        held, there = group.digests[several], there[several]
        for one, other in np.argwhere(there.T.astype(np.float32) @ there > 0).tolist():
            if one in pairs and other in pairs[one]:
                both = held[there[:, one] & there[:, other]]
                digests[one].setdefault(other, set()).update(both.tolist())
    return {one: {other: frozenset(own) for other, own in by.items()} for one, by in digests.items()}


Column = Literal["prompt", "text"]
#: The checks, what their digests are of, and what they say of a record.
CHECKS: Final[Mapping[str, tuple[Column, str]]] = {
    "evaluation_prompts": ("prompt", "has a prompt of the"),
    "cross_source": ("text", "stands as it is in the"),
    "contamination": ("text", "shares a run of words with the"),
    "near_duplicates": ("text", "is nearly alike a record of the"),
}


#: In a file in hexadecimal, ascending.
_Digests = Annotated[
    frozenset[Annotated[bytes, Field(min_length=32, max_length=32)]],
    Field(min_length=1),
    PlainSerializer(lambda digests: sorted(map(bytes.hex, digests))),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What of one source is alike something of another set.

    Attributes:
        digests: of the source's prompts or texts.
        others: how many different ones of the other set they are alike.
    """

    __pydantic_config__ = ConfigDict(val_json_bytes="hex", extra="forbid")

    digests: _Digests
    others: Annotated[int, Field(ge=1)]


#: By check, then by the other set ("source <label>" or "evaluation <name>").
Matched = Mapping[str, Mapping[str, Matches]]


def shared_prompts(
    sources: Mapping[str, Iterable[Rows]], evaluation: Mapping[str, Iterable[Rows]]
) -> tuple[dict[str, dict[str, Matches]], dict[str, int]]:
    """The prompts that each source shares with each evaluation set, and how many of its records repeat a prompt."""
    names = [*sources, *(f"evaluation {name}" for name in evaluation)]
    own, others = range(len(sources)), range(len(sources), len(names))
    repeated = np.zeros(len(names), dtype=np.int64)

    def counted(found: Iterable[Group]) -> Iterator[Group]:
        for group in found:
            np.add(repeated, group.counts.sum(axis=0) - (group.counts > 0).sum(axis=0), out=repeated)
            yield group

    sets = [*sources.values(), *evaluation.values()]
    shared = shared_digests(counted(_columns(sets, "prompt")), dict.fromkeys(own, others))
    return _matches(shared, names), dict(zip(sources, repeated.tolist(), strict=False))


def shared_texts(sources: Mapping[str, Iterable[Rows]]) -> dict[str, dict[str, Matches]]:
    """The records that each set shares with each source before it, in the order given."""
    names = [f"source {label}" for label in sources]
    earlier = {number: range(number) for number in range(len(names))}
    found = _matches(shared_digests(_columns(sources.values(), "text"), earlier), names)
    return {label: found[name] for label, name in zip(sources, names, strict=True)}


def _columns(sets: Iterable[Iterable[Rows]], column: Column) -> Iterator[Group]:
    return groups((rows[column] for rows in pieces) for pieces in sets)


def _matches(
    shared: Mapping[int, Mapping[int, frozenset[bytes]]], names: Sequence[str]
) -> dict[str, dict[str, Matches]]:
    return {
        names[one]: {names[other]: Matches(digests=own, others=len(own)) for other, own in sorted(by.items())}
        for one, by in shared.items()
    }


def barred(matched: Matched, rules: HygieneRules) -> Barred:
    """What leaves a source for what was found in it."""
    leaving: dict[Column, frozenset[bytes]] = {"prompt": frozenset(), "text": frozenset()}
    reasons: dict[str, tuple[str, frozenset[bytes]]] = {}
    for check, by_other in matched.items():
        if rules.action(check) == "drop":
            column = CHECKS[check][0]
            found: frozenset[bytes] = frozenset().union(*(one.digests for one in by_other.values()))
            leaving[column] |= found
            reasons[f"left for `hygiene.{check}` ({', '.join(by_other)})"] = (column, found)
    return Barred(prompts=leaving["prompt"], texts=leaving["text"], reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A set of records that checks look at.

    Attributes:
        name: what it is called in messages: "source 'boolq'".
        parts: its rows, piece by piece, in the order in which its records are named.
        ids: the ids of rows.
        place: where a row's record stands, in words.
    """

    name: str
    parts: Callable[[], Iterator[Rows]]
    ids: Callable[[Rows], Sequence[str]]
    place: Callable[[int, int], str]


def checked_records(name: str, records: Iterable[Record]) -> Checked:
    """Records in memory, in code-point order of their ids."""
    ordered = sorted(records, key=lambda record: record.record_id)
    rows = as_rows(ordered)
    rows["at"] = np.arange(len(rows))

    def ids(some: Rows) -> list[str]:
        return [ordered[at].record_id for at in some["at"].tolist()]

    return Checked(
        name=name, parts=lambda: iter([rows]), ids=ids, place=lambda _, at: f"record {ordered[at].record_id}"
    )


def as_rows(records: Iterable[Record]) -> Rows:
    """Records as rows of a table, as far as their prompts and texts go."""
    found = [digests(record.prompt, record.completion, record.tools) for record in records]
    rows = np.zeros(len(found), dtype=ROW)
    for column, values in (("text", [text for text, _ in found]), ("prompt", [prompt for _, prompt in found])):
        rows[column] = np.frombuffer(b"".join(values), dtype="V32")
    return rows


def refuse(checked: Checked, matched: Matched, rules: HygieneRules) -> None:
    """Refuse a set in which a check found what the recipe refuses."""
    for check, by_other in matched.items():
        column, words = CHECKS[check]
        for other, one in by_other.items() if rules.action(check) == "refuse" else ():
            rows = np.concatenate([rows[among(rows[column], one.digests)] for rows in checked.parts()])
            first = rows[np.lexsort((rows["at"], rows["file"]))][0]
            kind, _, name = other.partition(" ")
            others = f", as {len(rows) - 1:,} more do" if len(rows) > 1 else ""
            raise DataError(
                f"{checked.name}: {checked.place(int(first['file']), int(first['at']))} {words} "
                f"{'evaluation set' if kind == 'evaluation' else kind} {name!r}{others}; leave those out, or say "
                f"`hygiene.{check}: drop` or `keep`"
            )


def found(checked: Checked, matched: Matched) -> dict[str, dict[str, Found]]:
    """What was matched, counted and named, in one pass over the set."""
    tallies = {
        (check, other): _Tally(CHECKS[check][0], one) for check, by in matched.items() for other, one in by.items()
    }
    for rows in checked.parts() if tallies else ():
        for tally in tallies.values():
            tally.take(rows, checked.ids)
    return {check: {other: tallies[check, other].found() for other in by} for check, by in matched.items() if by}


class _Tally:
    """Counts and names the records that have one of some digests."""

    def __init__(self, column: Column, matches: Matches) -> None:
        self._column = column
        self._matches = matches
        self._count = 0
        self._named: list[str] = []
        self._digest = sha256(b"[")

    def take(self, rows: Rows, ids: Callable[[Rows], Sequence[str]]) -> None:
        own = ids(rows[among(rows[self._column], self._matches.digests)])
        if own:
            self._digest.update((b"," if self._count else b"") + canonical_array(own)[1:-1])
            self._count += len(own)
            self._named += own[: NAMED_IDS - len(self._named)]

    def found(self) -> Found:
        self._digest.update(b"]")
        return Found(
            records=self._count,
            others=self._matches.others,
            record_ids=tuple(self._named),
            record_ids_sha256=self._digest.hexdigest(),
        )


_SCHEMA: Final = "calibudget.findings/1"


_FILE: Final = TypeAdapter(Kept[Mapping[str, Matches]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """A set whose texts a check reads, and what they follow from."""

    records: Callable[[], Iterable[Record]]
    spec: SourceSpec
    files: Sequence[SourceFile]

    @classmethod
    def of(cls, source: Resolved) -> Self:
        """The texts of a source after its pass."""
        return cls(records=source.again, spec=source.scan.spec, files=source.scan.files)

    @property
    def bytes(self) -> int:
        """Length of what it is read from."""
        return sum(file.bytes for file in self.files)

    def follows_from(self) -> list[object]:
        """What decides the texts, whatever the set is called; equal ones may be dropped, kept or renamed."""
        return [said_of_rows(self.spec), [asdict(file) for file in self.files]]


def kept_findings(
    folder: Path | None,
    check: Sequence[object],
    sets: Mapping[str, Texts],
    look: Callable[[], Mapping[str, Matches]],
) -> Mapping[str, Matches]:
    """What a check finds in one set: what a cache keeps of an earlier time, or what it finds now, which is then kept.

    Args:
        folder: the cache, None to neither look nor keep.
        check: its name and all its settings.
        sets: every set that the findings follow from, under the names that they use; small ones aren't worth it.
        look: makes the check.
    """
    if folder is None or sum(one.bytes for one in sets.values()) < cache_files.SMALL:
        return look()
    contents = [[name, one.follows_from()] for name, one in sets.items()]
    path = kept_path(folder, "findings", _SCHEMA, check, contents)
    return kept_or_made(path, _SCHEMA, _FILE, look)[0]

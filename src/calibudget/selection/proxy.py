"""Proxy scores: what each candidate of a pool is worth to each calibration subgroup.

A score record holds the candidate's position in its pool, one mean per subgroup and, as its score, their maximum
(paper, appendix "Proxy-Score and Shard Validation"). The pool is scored in shards, position i in shard i mod the
shard count.

A file holds a header object, then one object a record, a line each; `docs/formats.md` has every field. Reading is
strict about each line by itself; whether the records may be used or merged is for `proxy_checks` to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field

from calibudget.errors import ArtefactError, InputError
from calibudget.keys import canonical_array
from calibudget.messages import counted, shown
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.json_records import Artefact, Shape, plain
from calibudget.values import Count, Digest, Integer, Number, Positive

Name = Annotated[str, Field(min_length=1)]
#: The paper's subgroups in their frozen order.
PAPER_SUBGROUPS: Final = (
    "arc_challenge",
    "arc_easy",
    "boolq",
    "hellaswag",
    "openbookqa",
    "piqa",
    "social_i_qa",
    "winogrande",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyContract:
    """What scores must agree with, frozen before they are made and never taken from the scores themselves.

    Attributes:
        subgroups: names of the calibration subgroups in their order; the paper's eight by default.
        shards: number of shards that make a complete set; the paper's four by default.
    """

    subgroups: tuple[str, ...] = PAPER_SUBGROUPS
    shards: int = 4

    def __post_init__(self) -> None:
        if not self.subgroups or not all(self.subgroups) or len(set(self.subgroups)) != len(self.subgroups):
            raise InputError(f"subgroup names must be nonempty and unique: {list(self.subgroups)}")
        if self.shards < 1:
            raise InputError(f"a set has at least 1 shard, not {shown(self.shards)}")


PAPER_CONTRACT: Final = ProxyContract()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyPool:
    """The candidates that positions count: sources in code-point order, ids ascending within a source.

    It depends on which candidates there are and on no seed, so scores outlive a change of the selection seed.

    Attributes:
        candidates: ids by source label; make it with `proxy_pool`.
    """

    candidates: Mapping[str, tuple[str, ...]]

    @property
    def size(self) -> int:
        """Number of positions."""
        return sum(map(len, self.candidates.values()))

    @property
    def sha256(self) -> str:
        """What binds scores to this pool: `pool_sha256` of its entries."""
        return pool_sha256(self.entries())

    def entries(self) -> Iterator[tuple[str, str]]:
        """Source and record id of each position, in the order of positions."""
        return ((source, record_id) for source, ids in self.candidates.items() for record_id in ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeader:
    """What the records of one shard, or of a merged set, have in common.

    Attributes:
        pool_size: number of positions, at least 1.
        pool_sha256: `ProxyPool.sha256` of the pool that was scored.
        subgroups: names of the calibration subgroups in their frozen order.
        shards: number of shards that the pool was scored in, at least 1.
        shard: which of them this is, None once they are merged.
        provenance: what made the scores (model, warm-up, projection), any JSON object.
    """

    pool_size: Count
    pool_sha256: Digest
    subgroups: tuple[str, ...]
    shards: Positive
    shard: Count | None
    provenance: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRecord:
    """One candidate's scores.

    Attributes:
        position: place in the pool, from 0.
        source: label of its source.
        record_id: id of the record.
        subgroups: names that the means belong to, in the frozen order.
        subgroup_means: mean similarity to each subgroup, shape (subgroups,), finite.
        score: the aggregate, equal to the largest subgroup mean.
    """

    position: Integer
    source: Name
    record_id: Name
    subgroups: tuple[str, ...]
    subgroup_means: tuple[Number, ...]
    score: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyScores:
    """A header with its records: one shard in any order, or a merged set in rank order."""

    header: ProxyHeader
    records: tuple[ProxyRecord, ...]


def proxy_pool(pools: Mapping[str, Iterable[str]]) -> ProxyPool:
    """The pool of all sources' candidates, whatever the order they are given in.

    Raises:
        InputError: an id twice in one source.
    """
    candidates = {source: tuple(sorted(pools[source])) for source in sorted(pools)}
    for source, ids in candidates.items():
        twice = next((a for a, b in pairwise(ids) if a == b), None)
        if twice is not None:
            raise InputError(f"{source}: the candidate {twice!r} is in the pool twice")
    return ProxyPool(candidates=candidates)


def ranked(records: Iterable[ProxyRecord]) -> list[ProxyRecord]:
    """The records by descending score, then record id, then source (the same content can be in two sources)."""
    return sorted(records, key=lambda record: (-record.score, record.record_id, record.source))


def top(scores: ProxyScores, count: int) -> tuple[ProxyRecord, ...]:
    """The paper's stable top-B: the first `count` records by descending score, then record id.

    Raises:
        InputError: the count is negative or above the number of records.
    """
    if not 0 <= count <= len(scores.records):
        raise InputError(f"the top {shown(count)} of {counted(len(scores.records), 'scored candidate')} can't be taken")
    return tuple(ranked(scores.records)[:count])


def pool_sha256(entries: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of the RFC 8785 array of [source, record_id] arrays, in the given order: what binds scores to a pool."""
    digest = hashlib.sha256()
    separator = b"["
    for entry in entries:
        digest.update(separator + canonical_array(entry))
        separator = b","
    digest.update(b"]" if separator == b"," else b"[]")
    return digest.hexdigest()


HEADER: Final = Artefact("calibudget.proxy/1", ProxyHeader)
RECORD: Final = Shape(ProxyRecord)


def proxy_lines(scores: ProxyScores) -> Iterator[bytes]:
    """The lines of a proxy-score file, each canonical JSON and a line feed.

    Raises:
        InputError: a value that has no canonical JSON form.
    """
    yield canonical_json(HEADER.to_json(scores.header)) + b"\n"
    for record in scores.records:
        yield canonical_json(plain(record)) + b"\n"


def parse_proxy_lines(lines: Iterable[bytes], name: str) -> ProxyScores:
    """Read the lines of a proxy-score file.

    Raises:
        ArtefactError: a line isn't one JSON object of exactly the documented fields; file, line and field are named.
    """
    numbered = ((line, f"{name}:{number}") for number, line in enumerate(lines, start=1))
    first = next(numbered, None)
    if first is None:
        raise ArtefactError(f"{name}: empty; a proxy-score file begins with its header")
    header = HEADER.parse(loads_object(*first), first[1])
    return ProxyScores(header=header, records=tuple(_parse_record(line, place, header) for line, place in numbered))


def _parse_record(line: bytes, place: str, header: ProxyHeader) -> ProxyRecord:
    record = RECORD.parse(loads_object(line, place), place)
    if len(record.subgroup_means) != len(record.subgroups):
        raise ArtefactError(f"{place}: subgroup_means: must be a list of length {len(record.subgroups)}")
    # one tuple of names for a million records
    return replace(record, subgroups=header.subgroups) if record.subgroups == header.subgroups else record

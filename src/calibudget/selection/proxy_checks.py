"""Whether proxy scores may be used: every check refuses, none repairs.

Source: paper, appendix "Proxy-Score and Shard Validation".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from calibudget.errors import ArtefactError
from calibudget.messages import counted
from calibudget.selection.proxy import (
    PAPER_CONTRACT,
    ProxyContract,
    ProxyHeader,
    ProxyPool,
    ProxyRecord,
    ProxyScores,
    pool_sha256,
    ranked,
)


def check_shard(scores: ProxyScores, *, contract: ProxyContract = PAPER_CONTRACT, name: str = "") -> None:
    """Check one shard in itself: its header, every record, and that its positions are exactly the shard's.

    Raises:
        ArtefactError: the first thing found wrong, with `name` and the position where there is one.
    """
    header = scores.header
    name = name or f"shard {header.shard}"
    _check_header(header, contract, name)
    if header.shard is None:
        raise ArtefactError(f"{name}: is merged already, not a shard")
    _check_records(scores, name)
    for record in scores.records:
        if record.position % header.shards != header.shard:
            belongs = f"belongs to shard {record.position % header.shards}, not {header.shard}"
            raise ArtefactError(f"{name}: position {record.position} {belongs} of {header.shards}")
    _check_complete(scores, range(header.shard, header.pool_size, header.shards), name)


def check_merged(scores: ProxyScores, *, contract: ProxyContract = PAPER_CONTRACT, name: str = "merged") -> None:
    """Check a merged set: its header, every record, that each position is there once, the pool's digest, the order.

    Raises:
        ArtefactError: the first thing found wrong, with the position where there is one.
    """
    header = scores.header
    _check_header(header, contract, name)
    if header.shard is not None:
        raise ArtefactError(
            f"{name}: is shard {header.shard} of {header.shards}; merge all shards first (`calibudget proxy merge`)"
        )
    _check_records(scores, name)
    _check_complete(scores, range(header.pool_size), name)
    _check_pool_digest(scores, name)
    if list(scores.records) != ranked(scores.records):
        raise ArtefactError(f"{name}: the records must stand by descending score, then record id")


def check_pool(scores: ProxyScores, pool: ProxyPool, name: str = "proxy scores") -> None:
    """Check that scores were made for this pool, position by position.

    Raises:
        ArtefactError: they were made for another one; both sizes and digests are shown, or the first position whose
            candidate isn't the pool's.
    """
    header = scores.header
    if (header.pool_size, header.pool_sha256) != (pool.size, pool.sha256):
        raise ArtefactError(
            f"{name}: made for another pool ({counted(header.pool_size, 'candidate')}, {header.pool_sha256[:12]}…) "
            f"than this one ({counted(pool.size, 'candidate')}, {pool.sha256[:12]}…); score this pool again "
            "(`calibudget influence`)"
        )
    entries = list(pool.entries())
    for record in scores.records:
        if not 0 <= record.position < len(entries):
            raise ArtefactError(f"{name}: position {record.position} is outside the pool of {len(entries)}")
        if entries[record.position] != (record.source, record.record_id):
            source, record_id = entries[record.position]
            raise ArtefactError(
                f"{name}: position {record.position} scores {record.record_id!r} of {record.source}, "
                f"but the pool has {record_id!r} of {source} there"
            )


def merge_shards(
    shards: Sequence[ProxyScores], *, contract: ProxyContract = PAPER_CONTRACT, names: Sequence[str] = ()
) -> ProxyScores:
    """The complete, ranked set of a pool's scores from all its shards, given in any order.

    Errors call the shards by `names`, one each, or "shard 0" and so on.

    Raises:
        ArtefactError: a shard is invalid, missing or given twice; two differ in pool or provenance; or the
            candidates aren't those that the pool's digest binds.
    """
    if not shards:
        raise ArtefactError("no shards to merge")
    for shard, name in zip(shards, names or [""] * len(shards), strict=True):
        check_shard(shard, contract=contract, name=name)
    _check_set([shard.header for shard in shards], names)
    records = ranked(chain.from_iterable(shard.records for shard in shards))
    merged = ProxyScores(header=replace(shards[0].header, shard=None), records=tuple(records))
    _check_pool_digest(merged, ", ".join(names) or "merged shards")
    return merged


def _check_header(header: ProxyHeader, contract: ProxyContract, name: str) -> None:
    if header.subgroups != contract.subgroups:
        say = "say so by `influence: {subgroups: [...]}` in the recipe, or by `--subgroup`"
        raise ArtefactError(f"{name}: {_drift(header.subgroups, contract.subgroups)}; if these are right, {say}")
    if header.shards != contract.shards:
        found, expected = counted(header.shards, "shard"), f"expected were {contract.shards}"
        say = f"say `influence: {{file: ..., shards: {header.shards}}}` in the recipe, or `--shards {header.shards}`"
        raise ArtefactError(f"{name}: scored in {found}, {expected}; if {header.shards} is right, {say}")
    if header.pool_size < 1:
        raise ArtefactError(f"{name}: a pool has at least 1 candidate, not {header.pool_size}")
    if not 0 <= (header.shard or 0) < header.shards:
        raise ArtefactError(f"{name}: there is no shard {header.shard} of {header.shards}, they count from 0")


def _check_records(scores: ProxyScores, name: str) -> None:
    """Each record by itself, and no position or candidate twice."""
    positions: set[int] = set()
    candidates: set[tuple[str, str]] = set()
    for record in scores.records:
        fault = _record_fault(record, scores.header)
        if not fault and record.position in positions:
            fault = "is given twice"
        if not fault and (record.source, record.record_id) in candidates:
            fault = f"repeats the candidate {record.record_id!r} of {record.source}"
        if fault:
            raise ArtefactError(f"{name}: position {record.position} {fault}")
        positions.add(record.position)
        candidates.add((record.source, record.record_id))


def _record_fault(record: ProxyRecord, header: ProxyHeader) -> str | None:
    if not 0 <= record.position < header.pool_size:
        return f"is outside the pool of {header.pool_size}"
    if not record.source or not record.record_id:
        return "has no source or no record id"
    if record.subgroups != header.subgroups:
        return f"has drifted: {_drift(record.subgroups, header.subgroups)}"
    if len(record.subgroup_means) != len(header.subgroups):
        means = counted(len(record.subgroup_means), "subgroup mean")
        return f"has {means} for {counted(len(header.subgroups), 'subgroup')}"
    for subgroup, mean in zip(header.subgroups, record.subgroup_means, strict=True):
        if not math.isfinite(mean):
            return f"has the mean {mean} for {subgroup}; every subgroup mean must be finite"
    largest = max(record.subgroup_means)
    # bit for bit: -0.0 is another double than 0.0
    if repr(record.score) not in {repr(mean) for mean in record.subgroup_means if mean == largest}:
        return f"has the score {record.score!r}, but its largest subgroup mean is {largest!r}"
    return None


def _drift(found: Sequence[str], expected: Sequence[str]) -> str:
    return f"the subgroups must be {', '.join(expected)}, in this order, not {', '.join(found) or 'none'}"


def _check_complete(scores: ProxyScores, expected: range, name: str) -> None:
    if len(scores.records) != len(expected):  # positions are unique and in range by now
        present = {record.position for record in scores.records}
        missing = len(expected) - len(present)
        first = next(position for position in expected if position not in present)
        raise ArtefactError(f"{name}: {missing} of {len(expected)} positions are missing, first {first}")


def _check_set(headers: Sequence[ProxyHeader], names: Sequence[str]) -> None:
    first = headers[0]
    for number, header in enumerate(headers[1:], start=1):
        for attribute in ("pool_size", "pool_sha256", "provenance"):
            ours, theirs = getattr(first, attribute), getattr(header, attribute)
            if ours != theirs:
                pair = f"{names[0]} and {names[number]}" if names else f"shards {first.shard} and {header.shard}"
                raise ArtefactError(f"{pair} differ in {attribute}: {ours!r} and {theirs!r}; they are of two runs")
    given = sorted(header.shard for header in headers if header.shard is not None)
    if given != list(range(first.shards)):
        found = [f"{name} is shard {header.shard}" for name, header in zip(names, headers, strict=False)]
        missing = sorted(set(range(first.shards)) - set(given))
        raise ArtefactError(
            f"merging needs each of the shards 0 to {first.shards - 1} once; given were {given}"
            + (f" ({', '.join(found)})" if found else "")
            + (f"; give the file of shard {missing[0]} too" if missing else "; leave the repeated file out")
        )


def _check_pool_digest(scores: ProxyScores, name: str) -> None:
    by_position = sorted(scores.records, key=lambda record: record.position)
    if pool_sha256((record.source, record.record_id) for record in by_position) != scores.header.pool_sha256:
        raise ArtefactError(f"{name}: the candidates aren't those of the pool that pool_sha256 binds")

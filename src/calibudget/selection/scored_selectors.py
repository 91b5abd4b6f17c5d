"""Selectors that order candidates by a score: a column of the user's, bands of quality, influence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from calibudget.allocation.apportionment import listed
from calibudget.errors import DataError, InputError
from calibudget.records import Record
from calibudget.selection.proxy import PAPER_CONTRACT, ProxyContract, ProxyPool, ProxyScores
from calibudget.selection.proxy_checks import check_merged, check_pool
from calibudget.selection.selectors import Scored, finite_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range of values, both ends included; None is an open end."""

    lowest: float | None = None
    highest: float | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.lowest, self.highest) if end is not None]
        if any(math.isnan(end) for end in ends) or ends != sorted(ends):
            raise InputError(f"a band runs from its lowest to its highest value, not {self.lowest} to {self.highest}")

    def __contains__(self, value: float) -> bool:
        return (self.lowest is None or value >= self.lowest) and (self.highest is None or value <= self.highest)


def column_selector(pools: Mapping[str, Sequence[Record]], column: str, *, descending: bool = True) -> Scored:
    """Order by a number that the user's own data carries; a record where it is missing or null has no score.

    Args:
        pools: every source's candidates.
        column: name of the field in the records' original fields.
        descending: whether higher is better.

    Raises:
        DataError: no record has the column, the nearest names being told; or a value that is no finite number, its
            source and record being named.
    """
    _require_column(pools, column)
    sign = 1.0 if descending else -1.0
    scores = {
        source: {
            record.record_id: sign * _number(record, column)
            for record in records
            if record.original.get(column) is not None
        }
        for source, records in pools.items()
    }
    return Scored(name="scores", scores=scores, parameters={"column": column, "descending": descending})


def quality_selector(
    pools: Mapping[str, Sequence[Record]],
    *,
    length: Callable[[Record], int] | None = None,
    length_band: Band = Band(),
    perplexities: Mapping[str, Mapping[str, float]] | None = None,
    perplexity_band: Band = Band(),
) -> Scored:
    """Take only records inside a band of lengths and a band of perplexities, and those uniformly.

    Args:
        pools: every source's candidates.
        length: the length of a record in the caller's unit (characters, words, tokens); None leaves lengths alone.
        length_band: the lengths that may be taken.
        perplexities: perplexity by source and record id, > 0; None leaves it alone. A record without one is out.
        perplexity_band: the perplexities that may be taken.

    Raises:
        InputError: a band without the values to apply it to, or a perplexity that is NaN.
    """
    if length is None and length_band != Band():
        raise InputError("a length band needs a length function")
    if perplexities is None and perplexity_band != Band():
        raise InputError("a perplexity band needs the records' perplexities")

    def fits(record: Record) -> bool:
        if length is not None and length(record) not in length_band:
            return False
        return perplexities is None or _perplexity_fits(record, perplexities, perplexity_band)

    scores = {
        source: {record.record_id: 0.0 for record in records if fits(record)} for source, records in pools.items()
    }
    return Scored(
        name="quality",
        scores=scores,
        parameters={"length": _ends(length_band), "perplexity": _ends(perplexity_band)},
    )


def influence_selector(
    merged: ProxyScores,
    pool: ProxyPool,
    *,
    contract: ProxyContract = PAPER_CONTRACT,
    name: str = "proxy scores",
) -> Scored:
    """Order by the aggregate of merged proxy scores: the largest mean similarity to a calibration subgroup.

    Args:
        merged: a complete, merged set.
        pool: the candidates that the quotas are taken from.
        contract: the subgroup order and shard count that the scores must have.
        name: what to call the scores in an error, the name of their file.

    Raises:
        ArtefactError: the scores are no valid merged set, or were made for another pool.
    """
    check_merged(merged, contract=contract, name=name)
    check_pool(merged, pool, name)
    scores: dict[str, dict[str, float]] = {source: {} for source in pool.candidates}
    for record in merged.records:
        scores[record.source][record.record_id] = record.score
    header = merged.header
    parameters = {
        "pool_sha256": header.pool_sha256,
        "subgroups": list(header.subgroups),
        "shards": header.shards,
        "provenance": dict(header.provenance),
    }
    return Scored(name="influence", scores=scores, parameters=parameters)


def _require_column(pools: Mapping[str, Sequence[Record]], column: str) -> None:
    if not any(pools.values()) or any(column in one.original for records in pools.values() for one in records):
        return
    columns = sorted({str(name) for records in pools.values() for one in records for name in one.original})
    nearest = get_close_matches(column, columns, n=3)
    say = f"did you mean {' or '.join(map(repr, nearest))}?" if nearest else f"the columns are {listed(columns)}"
    raise DataError(f"no row has the column {column!r} to select by; {say}")


def _number(record: Record, column: str) -> float:
    value = finite_number(record.original[column])
    if value is None:
        found = repr(record.original[column])
        place = f"{record.source}: {column!r} of record {record.record_id}"
        raise DataError(f"{place} must be a finite number to select by, not {found}")
    return value


def _perplexity_fits(record: Record, perplexities: Mapping[str, Mapping[str, float]], band: Band) -> bool:
    perplexity = perplexities.get(record.source, {}).get(record.record_id)
    if perplexity is not None and math.isnan(perplexity):
        raise InputError(f"{record.source}: the perplexity of record {record.record_id} is NaN")
    return perplexity is not None and perplexity in band


def _ends(band: Band) -> list[float | None]:
    return [band.lowest, band.highest]

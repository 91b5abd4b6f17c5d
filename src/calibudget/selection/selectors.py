"""Which of a source's candidates its quota takes: all alike (the default and the control), or the best first.

A selector is given the candidates in key order and takes as many as the quota says. Candidates of equal worth are
taken in key order, so every selector is as reproducible as the uniform draw, and a larger quota keeps a smaller one's
picks (a mix of three selectors or more may not, since largest remainders aren't monotone then). The paper draws
uniformly (2.3) and leaves other rules open.

Selectors that order candidates by a score: a column of the user's, a band of lengths, influence.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Final

from calibudget.allocation.quotas import apportion
from calibudget.allocation.source_labels import listed
from calibudget.errors import DataError, InputError
from calibudget.messages import counted
from calibudget.records import Record, SelectorScores
from calibudget.selection.proxy import PAPER_CONTRACT, ProxyContract, ProxyPool, ProxyScores
from calibudget.selection.proxy_checks import check_merged, check_pool
from calibudget.store.canonical import canonical_json, sha256_hex


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every candidate is worth the same, so the quota takes the first in key order: a uniform draw (paper 2.3)."""

    @property
    def name(self) -> str:
        """Always "uniform"."""
        return "uniform"

    def order(self, source: str, candidates: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """The candidates of any source as they stand."""
        return candidates

    def take(self, source: str, candidates: Sequence[str], quota: int) -> Sequence[str]:
        """The first `quota` candidates."""
        _check_enough(self.name, source, len(candidates), len(candidates), quota)
        return candidates[:quota]

    def describe(self) -> dict[str, object]:
        """The name alone: the draw depends on nothing but seed and ids."""
        return {"name": self.name}


#: The selector of the paper.
UNIFORM: Final = Uniform()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored(SelectorScores):
    """The candidates of the highest scores, under a name of the evidence's: "scores", "quality", "influence"."""

    name: str

    def order(self, source: str, candidates: Sequence[str]) -> Sequence[str]:
        """The candidates that have a score, best first, ties in the order given."""
        scores = self.scores.get(source, {})
        return sorted((one for one in candidates if one in scores), key=lambda one: -scores[one])

    def take(self, source: str, candidates: Sequence[str], quota: int) -> Sequence[str]:
        """The `quota` candidates of the highest scores."""
        ordered = self.order(source, candidates)
        column = self.parameters.get("column")
        having = "" if column is None else f" with a number in the column {column!r}"
        _check_enough(self.name, source, len(ordered), len(candidates), quota, having)
        return ordered[:quota]

    def describe(self) -> dict[str, object]:
        """Name, parameters and the SHA-256 of the RFC 8785 array of [source, [[record_id, score], ...]] arrays.

        Sources and ids are in code-point order.
        """
        rows = [
            [source, [[one, float(score)] for one, score in sorted(self.scores[source].items())]]
            for source in sorted(self.scores)
        ]
        digest = sha256_hex(canonical_json(rows))
        return {"name": self.name, "parameters": dict(self.parameters), "scores_sha256": digest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Several selectors inside one quota, each with a part of it.

    The parts are integers by the allocator's own rounding. They take their turn in code-point order of their labels,
    each from what the ones before it left.

    Attributes:
        parts: the selectors by a label of the user's.
        weights: the part of the quota that each takes, by the same labels; see `require_shares`.
    """

    parts: Mapping[str, Uniform | Scored]
    weights: Mapping[str, float]

    @property
    def name(self) -> str:
        """Always "mix"."""
        return "mix"

    def take(self, source: str, candidates: Sequence[str], quota: int) -> Sequence[str]:
        """The parts' picks, one part after the other."""
        taken: dict[str, None] = {}
        for label, count in apportion(self.weights, quota).quotas.items():
            left = [one for one in candidates if one not in taken]
            taken.update(dict.fromkeys(self.parts[label].take(source, left, count) if count else ()))
        return list(taken)

    def describe(self) -> dict[str, object]:
        """Name, and each part's weight and description by label."""
        parts = {label: {"weight": self.weights[label], **self.parts[label].describe()} for label in sorted(self.parts)}
        return {"name": self.name, "parts": parts}


#: What takes a quota from a source's candidates, which it is given in key order, each once.
Selector = Uniform | Scored | Mix


def require_shares(weights: Mapping[str, float]) -> None:
    """Refuse weights of a mix, nonnegative and finite, that aren't parts of a whole.

    Raises:
        InputError: their sum is more than 1e-9 away from 1; it is told, with the shares that are in proportion to them.
    """
    total = sum(map(Fraction, weights.values()), Fraction(0))
    if abs(total - 1) <= Fraction(1, 10**9):
        return
    if not total:
        raise InputError("a mix needs a weight above 0")
    shares = ", ".join(f"{label}: {float(Fraction(weight) / total):.6g}" for label, weight in weights.items())
    raise InputError(
        f"the weights of a mix are parts of each quota and must sum to 1, not to {float(total):.12g}; "
        f"the same proportions are {{{shares}}}"
    )


def _check_enough(name: str, source: str, eligible: int, candidates: int, quota: int, having: str = "") -> None:
    if quota > eligible:
        raise InputError(
            f"{source}: the selector {name} has {eligible:,} of {counted(candidates, 'candidate')}{having} to "
            f"take {quota} from; lower the source's quota (a cap), widen the selector, or mix it with uniform"
        )


def column_selector(pools: Mapping[str, Sequence[Record]], column: str, *, descending: bool = True) -> Scored:
    """Order by a number that the user's own data carries, a column of the records' original fields.

    A record where it is missing or null has no score.

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
    length: Callable[[Record], int],
    band: tuple[float | None, float | None],
) -> Scored:
    """Take only records inside a band of lengths, and those uniformly.

    A length is in the caller's unit (characters, words, tokens); both ends of the band are included, None is open.
    """
    lowest, highest = (end if end is not None else open_end for end, open_end in zip(band, (0, math.inf), strict=True))
    scores = {
        source: {record.record_id: 0.0 for record in records if lowest <= length(record) <= highest}
        for source, records in pools.items()
    }
    return Scored(name="quality", scores=scores)


def influence_selector(
    merged: ProxyScores,
    pool: ProxyPool,
    *,
    contract: ProxyContract = PAPER_CONTRACT,
    name: str = "proxy scores",
) -> Scored:
    """Order by the aggregate of merged proxy scores: the largest mean similarity to a calibration subgroup.

    `merged` is a complete, merged set of the candidates in `pool`, under the contract; errors call it by `name`.

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
    value = record.original[column]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        place = f"{record.name}: {column!r}"
        raise DataError(f"{place} must be a finite number to select by, not {value!r}")
    return float(value)

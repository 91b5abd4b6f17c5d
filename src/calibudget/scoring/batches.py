"""Scoring everything, batch by batch, with a journal from which an interrupted scoring goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError, ScoringError, refuse_as
from calibudget.scoring.scorer import (
    CalibrationItem,
    Measurement,
    ParallelScorer,
    Scorer,
    item_to_json,
    measurement_from_json,
)
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.journal import Journal

_SCHEMA: Final = "calibudget.scoring-journal/1"


#: Called with the items done so far (journalled ones included) and their total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Every `count`-th batch from the `index`-th on, counted from 1: what one of several machines scores."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ScoringError(f"shard {self.index}/{self.count}: the first number is from 1 to the second")


def measure_all(
    scorer: Scorer,
    items: Sequence[CalibrationItem],
    *,
    journal_path: Path | None = None,
    progress: Progress | None = None,
    shard: Shard | None = None,
) -> list[Measurement]:
    """Measure all items; whole batches already in the journal are taken from it, never scored again.

    Args:
        scorer: what scores a batch, or several at once.
        items: any order; each record once.
        journal_path: where finished batches are kept; None keeps them in memory only. The file belongs to one
            scorer, as it describes itself, and to these items.
        progress: told how far it is, at the start and after each batch.
        shard: the batches to measure; None for all.

    Returns:
        One measurement an item, in their order; of a shard those of its batches alone.

    Raises:
        ScoringError: an item given twice or one that can't be scored, or an NLL that isn't finite; it is named. Or
            more shards than batches.
        ArtefactError: a journal of other work.
    """
    _check_unique(items)
    batches = scorer.batches(items)
    if shard is not None:
        if shard.count > len(batches):
            raise ScoringError(
                f"{shard.count} shards, and only {len(batches)} batches to score: ask for no more shards"
            )
        batches = batches[shard.index - 1 :: shard.count]
    tell = progress or (lambda *_: None)
    total = sum(map(len, batches))
    found: dict[int, Measurement] = {}
    header = _header(scorer, items, batches)
    with nullcontext() if journal_path is None else Journal.open(journal_path, header) as journal:
        finished = _finished(journal, items, batches)
        for number in finished:
            found |= zip(batches[number], finished[number], strict=True)
        tell(len(found), total)
        waiting = {n: [items[i] for i in batch] for n, batch in enumerate(batches) if n not in finished}
        for number, measurements in _measured(scorer, waiting):
            found |= zip(batches[number], _checked(measurements, waiting[number]), strict=True)
            if journal is not None:
                journal.append({"batch": number, "measurements": [asdict(one) for one in measurements]})
            tell(len(found), total)
    return [found[i] for i in sorted(found)]


def _measured(scorer: Scorer, batches: Mapping[int, list[CalibrationItem]]) -> Iterator[tuple[int, list[Measurement]]]:
    """Score batches, several at once where the scorer can."""
    if isinstance(scorer, ParallelScorer):
        yield from scorer.measure_batches(batches)
    else:
        for number, batch in batches.items():
            yield number, scorer.measure(batch)


def _check_unique(items: Iterable[CalibrationItem]) -> None:
    seen: set[tuple[str, str]] = set()
    for item in items:
        identity = (item.record.source, item.record.record_id)
        if identity in seen:
            raise ScoringError(f"{item.name}: given twice")
        seen.add(identity)


def _checked(measurements: list[Measurement], items: Sequence[CalibrationItem]) -> list[Measurement]:
    for measurement, item in zip(measurements, items, strict=True):
        if (measurement.source, measurement.record_id) != (item.record.source, item.record.record_id):
            raise ScoringError(f"{item.name}: the scorer answered with another record")
        if not math.isfinite(measurement.nll):
            raise ScoringError(f"{item.name}: the model gives an NLL of {measurement.nll}; such a score can't be used")
    return measurements


def _header(scorer: Scorer, items: Sequence[CalibrationItem], batches: list[tuple[int, ...]]) -> dict[str, object]:
    rows = [item_to_json(item) for item in items]
    content = [[rows[i] for i in batch] for batch in batches]
    by_source: dict[str, list[object]] = {}
    for item, row in zip(items, rows, strict=True):
        by_source.setdefault(item.record.source, []).append(row)
    return {
        "schema": _SCHEMA,
        "scorer": dict(scorer.describe()),
        "batches": len(batches),
        "items_sha256": sha256_hex(canonical_json(content)),
        "sources": {label: sha256_hex(canonical_json(own)) for label, own in by_source.items()},
    }


def _finished(
    journal: Journal | None, items: Sequence[CalibrationItem], batches: list[tuple[int, ...]]
) -> dict[int, list[Measurement]]:
    """The journalled batches by number."""
    finished: dict[int, list[Measurement]] = {}
    place = "scoring journal: an entry isn't a batch of this work"
    with refuse_as(ArtefactError, place, KeyError, TypeError, ValueError):
        for entry in journal.entries if journal is not None else ():
            number, rows = entry["batch"], entry["measurements"]
            if not isinstance(number, int) or not isinstance(rows, list) or not 0 <= number < len(batches):
                raise ValueError("not a batch")
            measurements = [measurement_from_json(row) for row in rows]
            finished[number] = _checked(measurements, [items[i] for i in batches[number]])
    return finished

"""`selector.parquet`: the scores that a selector ordered candidates by, and score files made elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from calibudget.errors import ArtefactError
from calibudget.records import SelectorScores
from calibudget.store.evaluation_logs import json_lines, table_rows
from calibudget.store.json_records import Artefact, Shape
from calibudget.store.parquet import columns, load_table, read_table, write_table
from calibudget.values import ByName, Number, Text

SELECTOR_NAME: Final = "selector.parquet"
_COLUMNS: Final = columns("selector string, source string, record_id string, score double")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """What the table says of itself: each selector's parameters."""

    selectors: ByName[Mapping[str, object]]


_METADATA: Final = Artefact("calibudget.selector/1", _Metadata)


class _Row(NamedTuple):
    selector: str
    source: str
    record_id: str
    score: float


def write_selector(path: Path, parts: Mapping[str, SelectorScores]) -> None:
    """Write `selector.parquet`, atomically."""
    rows = sorted(
        _Row(name, source, record_id, float(score))
        for name, part in parts.items()
        for source, scores in part.scores.items()
        for record_id, score in scores.items()
    )
    values = {name: [row[i] for row in rows] for i, name in enumerate(_Row._fields)}
    metadata = _METADATA.to_json(_Metadata(selectors={name: part.parameters for name, part in parts.items()}))
    write_table(path, pa.table(values, schema=_COLUMNS), metadata, dictionary=["selector", "source"])


def read_selector(path: Path) -> dict[str, SelectorScores]:
    """Read `selector.parquet`.

    Returns:
        What each selector knows, by its name in code-point order.

    Raises:
        ArtefactError: the file is missing or damaged, or a column or row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    parameters = _METADATA.parse(metadata, f"{path.name}: schema metadata").selectors
    rows = [_Row(*values) for values in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    _check_rows(path.name, rows, parameters)
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in parameters}
    for (name, source), own in groupby(rows, key=lambda row: (row.selector, row.source)):
        scores[name][source] = {row.record_id: row.score for row in own}
    return {name: SelectorScores(parameters=parameters[name], scores=scores[name]) for name in parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One row of a file made elsewhere: whose it is, and its score."""

    source: Text
    record_id: Text
    score: Number


_VALUE: Final = Shape(Value, others="ignore")


def read_values(path: Path) -> Iterator[tuple[str, Value]]:
    """Read one score a record from a file made elsewhere, each with its place; other columns are left alone.

    Other suffixes than `.parquet` are JSONL; the columns are `source`, `record_id` and `score`.

    Raises:
        ArtefactError: the file can't be read, is empty, a row lacks a field or its score isn't finite, or a record
            stands twice; file and line or row are named.
    """
    seen: dict[tuple[str, str], str] = {}
    for place, fields in table_rows(load_table(path), path.name) if path.suffix == ".parquet" else json_lines(path):
        row = _VALUE.parse(fields, place)
        twin = seen.setdefault((row.source, row.record_id), place)
        if twin != place:
            raise ArtefactError(f"{place}: {row.record_id!r} of {row.source} stands at {twin} already")
        yield place, row
    if not seen:
        raise ArtefactError(f"{path.name}: holds no scores")


def _check_rows(name: str, rows: list[_Row], parameters: Mapping[str, object]) -> None:
    place: tuple[str, ...] = ()
    for number, row in enumerate(rows, start=1):
        fault = None
        if row.selector not in parameters:
            fault = f"the metadata names no selector {row.selector!r}"
        elif row[:3] <= place:
            fault = "rows must ascend by selector, source and record id"
        elif not math.isfinite(row.score):
            fault = f"the score of {row.record_id!r} must be finite, not {row.score}"
        if fault is not None:
            raise ArtefactError(f"{name}, row {number}: {fault}")
        place = row[:3]

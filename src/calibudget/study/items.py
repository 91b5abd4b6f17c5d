"""`items.parquet`: each item's own score in one cell, from which intervals over examples are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calibudget.errors import ArtefactError
from calibudget.store.artefacts.tables import read_table, write_table

_SCHEMA: Final = "calibudget.items/1"
_COLUMNS: Final = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("item", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemScore:
    """One item's score by one metric; None where it is undefined."""

    task: str
    item: str
    metric: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Items:
    """One task's items by one metric, in code-point order of their ids; values are NaN where undefined."""

    ids: tuple[str, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One task's items by one metric, summed up.

    Attributes:
        items: how many there are.
        undefined: how many of them have no value.
        mean: over those that have one; None where none has.
    """

    items: int
    undefined: int
    mean: float | None


def write_items(path: Path, scores: Iterable[ItemScore]) -> None:
    """Write `items.parquet`, atomically, in order; same scores, same bytes."""
    ordered = sorted(scores, key=lambda one: (one.task, one.item, one.metric))
    columns = dict(zip(_COLUMNS.names, map(list, zip(*map(astuple, ordered), strict=True)), strict=False))
    table = pa.table({name: columns.get(name, []) for name in _COLUMNS.names}, schema=_COLUMNS)
    write_table(path, table, {"schema": _SCHEMA}, dictionary=["task", "metric"])


def read_items(path: Path) -> Mapping[tuple[str, str], Items]:
    """Read `items.parquet` by (task, metric).

    Raises:
        ArtefactError: the file is missing or damaged, or an item stands there twice.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in _read(path).to_pylist():
        own = found.setdefault((row["task"], row["metric"]), {})
        if row["item"] in own:
            raise ArtefactError(f"{path.name}: the item {row['item']!r} of {row['task']!r} stands there twice")
        own[row["item"]] = float("nan") if row["value"] is None else row["value"]
    return {
        key: Items(ids=tuple(sorted(own)), values=np.array([own[one] for one in sorted(own)], dtype=np.float64))
        for key, own in found.items()
    }


def summarise_items(path: Path) -> Mapping[tuple[str, str], Summary]:
    """Sum up `items.parquet` by (task, metric), without a Python object an item.

    Raises:
        ArtefactError: the file is missing or damaged.
    """
    wanted = [
        ("value", "mean"),
        ("value", "count", pc.CountOptions("all")),
        ("value", "count", pc.CountOptions("only_null")),
    ]
    grouped = _read(path).group_by(["task", "metric"]).aggregate(wanted)
    tasks, metrics, means, items, undefined = (column.to_pylist() for column in grouped.columns)
    return {
        (task, metric): Summary(items=count, undefined=missing, mean=mean)
        for task, metric, mean, count, missing in zip(tasks, metrics, means, items, undefined, strict=True)
    }


def _read(path: Path) -> pa.Table:
    table, metadata = read_table(path, _COLUMNS)
    if metadata.get("schema") != _SCHEMA:
        raise ArtefactError(f"{path.name}: schema: expected {_SCHEMA!r}, found {metadata.get('schema')!r}")
    return table

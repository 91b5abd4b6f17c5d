"""The frozen records of a study: a cell of its grid, and what was measured in it; `cell.json`.

`items.parquet`: each item's own score in one cell, from which intervals over examples are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator

from calibudget.errors import ArtefactError
from calibudget.pipeline.progress import Progress
from calibudget.records import Unit
from calibudget.store.json_records import Artefact
from calibudget.store.parquet import columns, read_table, write_table
from calibudget.values import ByLabel, ByName, Count, Digest, Number, Size

ITEMS_NAME: Final = "items.parquet"
#: Folder of the cell's run, below the cell's.
RUN_NAME: Final = "run"
#: What to do with a cell that can't be believed.
REMEDY: Final = "remove the cell's folder and run again"
#: Whether a cell calibrates for itself, or takes quotas that were made for another seed or backbone (paper 3.4).
CellKind = Literal["adaptive", "transferred"]
#: Digests that every result is bound to.
REQUIRED_DIGESTS: Final = ("code", "data", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the grid: one policy, trained and evaluated once.

    Attributes:
        point: name of the point of the protocol that it belongs to, such as "main"; cells of one point are compared.
        seed: the training seed; cells of one point, backbone and seed are paired.
        budget: B, in `unit`.
        floor: f, in `unit`, as the protocol gives it, whatever the policy makes of it.
        kind: `adaptive` cells calibrate with their own seed on their own backbone; `transferred` cells don't.
        split_seed: seed of the calibration split and of the bootstrap.
        selection_seed: seed of the draw within a source.
        calibrated_on: name of the backbone whose need gave the quotas.
    """

    point: str
    policy: str
    backbone: str
    seed: Count
    budget: Count
    floor: Count
    unit: Unit = "examples"
    kind: CellKind = "adaptive"
    split_seed: Count
    selection_seed: Count
    calibrated_on: str

    @property
    def name(self) -> str:
        """Its folder below the study's `cells/`; unique within a study, whose points have different names."""
        return f"{self.point}/{self.backbone}/{self.policy}/{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """One task's metrics in one cell.

    Attributes:
        items: items that the task was asked, may be 0.
        metrics: mean over the items by name of the metric ("accuracy" 0 to 1, "nll" nats a token, …); None where it
            is undefined.
        shared: items whose prompt the cell's training set holds.
        calibration: items that calibrated the cell's run.
    """

    items: Count
    metrics: ByName[Number | None]
    shared: Count = 0
    calibration: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOutcome:
    """What a runner measured in one cell.

    Attributes:
        quotas: q_k by source label.
        seconds: time by stage ("select", "train", "evaluate", …).
        counts: what was processed ("train_tokens", "train_examples", "steps", "peak_memory_bytes", …).
        environment: what it ran on ("device", "torch", …).
    """

    quotas: ByLabel[Count]
    tasks: ByLabel[TaskMetrics]
    seconds: ByName[Size]
    counts: ByName[Count] = field(default_factory=dict)
    environment: ByName[str] = field(default_factory=dict)

    def of_cell(self, cell: Cell, digests: Mapping[str, str]) -> CellResult:
        """The outcome as what a cell came to."""
        own = {each.name: getattr(self, each.name) for each in fields(CellOutcome)}
        return CellResult(cell=cell, digests=digests, **own)


def _all_required(digests: Mapping[str, str]) -> Mapping[str, str]:
    absent = [name for name in REQUIRED_DIGESTS if name not in digests]
    if absent:
        raise ValueError(f"{absent[0]} is missing")
    return digests


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult(CellOutcome):
    """A finished cell, field by field as `cell.json` has it.

    Attributes:
        digests: SHA-256 of everything that the outcome depends on, by name; "code", "data" and "protocol" always,
            "items" where there is an `items.parquet`, "allocation" where the cell's run left an `allocation.json`.
    """

    cell: Cell
    digests: Annotated[ByName[Digest], AfterValidator(_all_required)]


CELL: Final = Artefact("calibudget.cell/1", CellResult, seal="cell_sha256")


class CellRunner(Protocol):
    """Makes cells; holds what cells share, such as a loaded base model."""

    def run(self, cell: Cell, directory: Path, progress: Progress) -> CellOutcome:
        """Select, train and evaluate one cell.

        Args:
            cell: which one.
            directory: its own folder, there already. What it holds of an interrupted attempt may be gone on with;
                an `items.parquet` may be left in it.
            progress: told how far the cell is.

        Raises:
            CalibudgetError: the cell can't be made; other cells go on.
            InterruptedRunError: stopped on request; everything stops.
        """
        ...


def read_cell(path: Path) -> CellResult:
    """Read `cell.json`.

    Raises:
        ArtefactError: the file is missing, torn, or was changed after it was written, or a field isn't what it should
            be; path and field are named.
    """
    try:
        return CELL.read(path)
    except ArtefactError as error:
        # what reads a file names it by its last part, and all cells have that in common
        found = str(error).removeprefix(path.name)
        raise ArtefactError(f"{path}{found}; {REMEDY}") from error


_SCHEMA: Final = "calibudget.items/1"
_COLUMNS: Final = columns("task string, item string, metric string, value double?")


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
    """One task's items by one metric, summed up."""

    items: int
    undefined: int
    mean: float | None


def write_items(path: Path, scores: Iterable[ItemScore]) -> None:
    """Write `items.parquet`, atomically, in order; same scores, same bytes."""
    ordered = sorted(scores, key=lambda one: (one.task, one.item, one.metric))
    values = dict(zip(_COLUMNS.names, map(list, zip(*map(astuple, ordered), strict=True)), strict=False))
    table = pa.table({name: values.get(name, []) for name in _COLUMNS.names}, schema=_COLUMNS)
    write_table(path, table, {"schema": _SCHEMA}, dictionary=["task", "metric"])


def read_items(path: Path) -> Mapping[tuple[str, str], Items]:
    """Read `items.parquet` by (task, metric).

    Raises:
        ArtefactError: the file is missing or damaged, or an item stands there twice.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in _read_table(path).to_pylist():
        own = found.setdefault((row["task"], row["metric"]), {})
        if row["item"] in own:
            raise ArtefactError(f"{path.name}: the item {row['item']!r} of {row['task']!r} stands there twice")
        own[row["item"]] = float("nan") if row["value"] is None else row["value"]
    return {
        key: Items(ids=tuple(sorted(own)), values=np.array([own[one] for one in sorted(own)], dtype=np.float64))
        for key, own in found.items()
    }


def summarise_items(path: Path) -> Mapping[tuple[str, str], Summary]:
    """Sum up `items.parquet` by (task, metric), without a Python object an item."""
    wanted = [
        ("value", "mean"),
        ("value", "count", pc.CountOptions("all")),
        ("value", "count", pc.CountOptions("only_null")),
    ]
    grouped = _read_table(path).group_by(["task", "metric"]).aggregate(wanted)
    tasks, metrics, means, items, undefined = (column.to_pylist() for column in grouped.columns)
    return {
        (task, metric): Summary(items=count, undefined=missing, mean=mean)
        for task, metric, mean, count, missing in zip(tasks, metrics, means, items, undefined, strict=True)
    }


def _read_table(path: Path) -> pa.Table:
    table, metadata = read_table(path, _COLUMNS)
    if metadata.get("schema") != _SCHEMA:
        raise ArtefactError(f"{path.name}: schema: expected {_SCHEMA!r}, found {metadata.get('schema')!r}")
    return table

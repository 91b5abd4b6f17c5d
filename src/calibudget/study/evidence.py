"""A finished cell held against the files that its numbers come from: its items, and its run's quotas.

The self digest of `cell.json` shows an edit; this shows one whose digest was made anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError
from calibudget.store.artefacts import ALLOCATION, ALLOCATION_NAME
from calibudget.store.sums import file_digest
from calibudget.study.records import (
    CELL_NAME,
    ITEMS_NAME,
    REMEDY,
    RUN_NAME,
    CellResult,
    Summary,
    TaskMetrics,
    summarise_items,
)

_FILES: Final = {"items": ITEMS_NAME, "allocation": f"{RUN_NAME}/{ALLOCATION_NAME}"}
#: Two sums of the same numbers in another order differ by less, relative.
_ROUNDING: Final = 1e-9


def digests_of_evidence(directory: Path) -> dict[str, str]:
    """SHA-256 of the files that a cell's numbers come from, by name; of those that its runner left."""
    paths = {name: directory / place for name, place in _FILES.items()}
    return {name: file_digest(path).sha256 for name, path in paths.items() if path.exists()}


def check_evidence(result: CellResult, directory: Path) -> None:
    """Refuse a cell whose numbers aren't those of its own files.

    Raises:
        ArtefactError: a file isn't the one that the cell was written with, or a number isn't what its file gives; the
            folder and the field are named.
    """
    found = digests_of_evidence(directory)
    for name, place in _FILES.items():
        if found.get(name) != result.digests.get(name):
            raise ArtefactError(
                f"{directory}: digests.{name}: {place} isn't the file that {CELL_NAME} was written with; {REMEDY}"
            )
    differences = [*_quotas(result, directory, found), *_tasks(result, directory, found)]
    if differences:
        raise ArtefactError(f"{directory}: {CELL_NAME}: {differences[0]}; {REMEDY}")


def _quotas(result: CellResult, directory: Path, found: Mapping[str, str]) -> Iterator[str]:
    if "allocation" not in found:
        return
    stated, own = result.outcome.quotas, ALLOCATION.read(directory / _FILES["allocation"]).quotas
    for label in sorted(stated.keys() | own.keys()):
        if stated.get(label) != own.get(label):
            yield f"quotas.{label}: {stated.get(label)}, but {_FILES['allocation']} gives {own.get(label)}"


def _tasks(result: CellResult, directory: Path, found: Mapping[str, str]) -> Iterator[str]:
    if "items" not in found:
        return
    own: dict[str, dict[str, Summary]] = {}
    for (task, metric), summary in summarise_items(directory / ITEMS_NAME).items():
        own.setdefault(task, {})[metric] = summary
    for task in sorted(result.outcome.tasks.keys() | own.keys()):
        if task not in result.outcome.tasks:
            yield f"tasks.{task}: is missing, but {ITEMS_NAME} holds its items"
        else:
            yield from _metrics(f"tasks.{task}", result.outcome.tasks[task], own.get(task, {}))


def _metrics(place: str, stated: TaskMetrics, own: Mapping[str, Summary]) -> Iterator[str]:
    for metric in sorted(own):
        if own[metric].items != stated.items:
            yield f"{place}.items: {stated.items}, but {ITEMS_NAME} holds {own[metric].items}"
    for metric in sorted(stated.metrics.keys() | own.keys()):
        value, mean = stated.metrics.get(metric), _mean(metric, own.get(metric))
        if not _same(value, mean):
            yield f"{place}.metrics.{metric}: {value}, but {ITEMS_NAME} gives {mean}"


def _mean(metric: str, summary: Summary | None) -> float | None:
    """A task's metric from its items: no accuracy while a verdict is deferred; an NLL over the items that have one."""
    if summary is None or (metric == "accuracy" and summary.undefined):
        return None
    return summary.mean


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)

"""Running a grid: what is finished is kept by content, what fails is told and left, what must stop is stopped.

Two cells whose settings, data and code are the same are made once, whatever points they belong to. A finished cell is
held against the files that its numbers come from: its items, and its run's quotas. The self digest of `cell.json` shows
an edit; that shows one whose digest was made anew.
"""

from __future__ import annotations

import math
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from calibudget.errors import ArtefactError, CalibudgetError, InterruptedRunError
from calibudget.pipeline.progress import Progress, silent
from calibudget.store.artefacts import ALLOCATION
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.checksums import file_digest
from calibudget.store.files import LOCK_NAME, output_directory, write_atomic
from calibudget.study.cell_records import (
    CELL,
    ITEMS_NAME,
    REMEDY,
    RUN_NAME,
    Cell,
    CellResult,
    CellRunner,
    Summary,
    read_cell,
    summarise_items,
)
from calibudget.study.grid import StopRule

FAILURE_NAME: Final = "failure.json"
#: A run that is being copied, until it is whole.
_STAGED: Final = ".run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A cell, its folder, and the digests of all that its outcome depends on."""

    cell: Cell
    directory: Path
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOutcome:
    """What became of a grid's cells; every planned cell is in exactly one of the three.

    Attributes:
        failed: what went wrong, by cell; tried again the next time.
        stopped: why cells weren't run, by cell.
    """

    results: Mapping[Cell, CellResult] = field(default_factory=dict)
    failed: Mapping[Cell, str] = field(default_factory=dict)
    stopped: Mapping[Cell, str] = field(default_factory=dict)


class Makers(Protocol):
    """Who makes cells, and leaves each one's result or failure in its folder; shipped: `Here` and `RayMakers`."""

    @property
    def size(self) -> int:
        """How many cells may be started before one of them is told of."""
        ...

    def start(self, planned: Planned) -> None:
        """Take a cell on."""
        ...

    def finished(self) -> list[tuple[Planned, CellResult | str]]:
        """Wait for at least one of the cells that were started: its result, or what went wrong.

        Raises:
            InterruptedRunError: stopped on request.
        """
        ...


class Here:
    """Makes cells in this process, one after another; see `Makers`."""

    size: Final = 1

    def __init__(self, runner: CellRunner, progress: Progress = silent) -> None:
        self._runner, self._progress = runner, progress
        self._started: list[Planned] = []

    def start(self, planned: Planned) -> None:
        """See `Makers`."""
        self._started.append(planned)

    def finished(self) -> list[tuple[Planned, CellResult | str]]:
        """See `Makers`; the cell is made now."""
        planned = self._started.pop()
        return [(planned, attempt(planned, partial(make, planned, self._runner, self._progress)))]


def run_grid(
    planned: Iterable[Planned], makers: Makers, *, stops: StopRule, progress: Progress = silent
) -> GridOutcome:
    """Run what isn't finished of a grid; the outcome is the same whoever makes the cells, and however many at a time.

    Cells are taken on in their order; `stops` is asked before each that isn't finished, once all that it looks at is
    settled.

    Raises:
        ArtefactError: a folder holds a cell of other code, data or settings, or can't be written.
        InterruptedRunError: stopped on request; finished cells are kept, and the next call goes on.
    """
    planned = list(planned)
    results = {one.cell: found for one in planned if (found := read_finished(one)) is not None}
    made = {_content(one): one for one in reversed(planned) if one.cell in results}  # the first of equal ones
    left = [one for one in planned if one.cell not in results]
    awaits = _awaits(left, stops)
    failed: dict[Cell, str] = {}
    stopped: dict[Cell, str] = {}

    def settle(one: Planned, found: CellResult | str) -> None:
        if isinstance(found, str):
            failed[one.cell] = found
        else:
            results[one.cell] = found
            made.setdefault(_content(one), one)

    at_work, waiting = 0, list(left)
    while waiting or at_work:
        progress("cells", len(left) - len(waiting) - at_work, len(left))
        settled = {*results, *failed, *stopped}
        ready = next((one for one in waiting if awaits[one.cell] <= settled), None)
        if ready is None or at_work == makers.size:
            for one, outcome in makers.finished():
                settle(one, outcome)
                at_work -= 1
            continue
        waiting.remove(ready)
        reason, same = stops.reason(ready.cell, results), made.get(_content(ready))
        if reason is not None:
            stopped[ready.cell] = reason
        elif same is not None:
            settle(ready, attempt(ready, partial(_copy, ready, same, results[same.cell])))
        else:
            makers.start(ready)
            at_work += 1
    progress("cells", len(left), len(left))
    order = [one.cell for one in planned]
    return GridOutcome(
        results={cell: results[cell] for cell in order if cell in results},
        failed={cell: failed[cell] for cell in order if cell in failed},
        stopped={cell: stopped[cell] for cell in order if cell in stopped},
    )


def _awaits(left: list[Planned], stops: StopRule) -> dict[Cell, set[Cell]]:
    """The earlier cells that must be settled before a cell's turn: the same work, and what its criterion looks at."""
    contents = {one.cell: _content(one) for one in left}
    return {
        one.cell: {
            other.cell
            for other in left[:place]
            if contents[other.cell] == contents[one.cell] or stops.looks_at(one.cell, other.cell)
        }
        for place, one in enumerate(left)
    }


def attempt(planned: Planned, work: Callable[[], CellResult]) -> CellResult | str:
    """A cell's result, or what went wrong, which is left beside the cell too.

    Raises:
        InterruptedRunError: stopped on request.
    """
    try:
        return work()
    except InterruptedRunError:
        raise
    except Exception as error:
        return note_failure(planned, error)


def read_finished(planned: Planned) -> CellResult | None:
    """A cell's result, None where it isn't finished.

    Raises:
        ArtefactError: the folder holds another cell, the cell from other code, data or settings, or one that was
            edited: its self digest doesn't fit, or its numbers aren't those of its items and its run.
    """
    path = planned.directory / CELL.name
    if not path.exists():
        return None
    found = read_cell(path)
    if found.cell != planned.cell:
        raise ArtefactError(f"{path}: holds the cell {found.cell.name} with other fields; {REMEDY}")
    for name, digest in planned.digests.items():
        if found.digests.get(name) != digest:
            raise ArtefactError(
                f"{path}: the cell was made with other {'settings' if name == 'protocol' else name} (digest "
                f"{found.digests.get(name)}, not {digest}); {REMEDY}"
            )
    check_evidence(found, planned.directory)
    return found


def _content(planned: Planned) -> str:
    """What two cells share that are the same work under two names."""
    return sha256_hex(canonical_json(dict(planned.digests)))


def make(planned: Planned, runner: CellRunner, progress: Progress) -> CellResult:
    """Make a cell in its folder."""
    directory = planned.directory
    with output_directory(directory):
        outcome = runner.run(planned.cell, directory, progress)
        digests = {**planned.digests, **digests_of_evidence(directory)}
        result = outcome.of_cell(planned.cell, digests)
        CELL.write(directory / CELL.name, result)
        (directory / FAILURE_NAME).unlink(missing_ok=True)
    return result


def _copy(planned: Planned, same: Planned, made: CellResult) -> CellResult:
    """The result of a cell that is the same work, under this cell's name, with the files that its numbers come from."""
    with output_directory(planned.directory):
        items = same.directory / ITEMS_NAME
        if items.exists():
            write_atomic(planned.directory / ITEMS_NAME, items.read_bytes())
        _copy_run(same.directory, planned.directory)
        result = replace(made, cell=planned.cell)
        CELL.write(planned.directory / CELL.name, result)
        (planned.directory / FAILURE_NAME).unlink(missing_ok=True)
    return result


def _copy_run(source: Path, target: Path) -> None:
    """Copy a cell's run, which is there whole or not at all."""
    for leftover in (target / _STAGED, target / RUN_NAME):
        shutil.rmtree(leftover, ignore_errors=True)
    if (source / RUN_NAME).exists():
        shutil.copytree(source / RUN_NAME, target / _STAGED, ignore=shutil.ignore_patterns(LOCK_NAME))
        (target / _STAGED).replace(target / RUN_NAME)


def note_failure(planned: Planned, error: Exception) -> str:
    """What went wrong, left beside the cell too; faults of our own with their trace."""
    known = isinstance(error, CalibudgetError) and error.exit_code != CalibudgetError.exit_code
    note = {
        "schema": "calibudget.failure/1",
        "cell": planned.cell.name,
        "error": type(error).__name__,
        "message": str(error),
        "trace": None if known else "".join(traceback.format_exception(error)),
    }
    planned.directory.mkdir(parents=True, exist_ok=True)  # a cell that failed at once left none
    try:
        write_atomic(planned.directory / FAILURE_NAME, canonical_json(note))
    except ArtefactError:  # a worker that is being killed may have begun, and cleared this file away as stale
        write_atomic(planned.directory / FAILURE_NAME, canonical_json(note))
    return f"{type(error).__name__}: {error}"


_FILES: Final = {"items": ITEMS_NAME, "allocation": f"{RUN_NAME}/{ALLOCATION.name}"}
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
                f"{directory}: digests.{name}: {place} isn't the file that {CELL.name} was written with; {REMEDY}"
            )
    for difference in _differences(result, directory, found):
        raise ArtefactError(f"{directory}: {CELL.name}: {difference}; {REMEDY}")


def _differences(result: CellResult, directory: Path, found: Mapping[str, str]) -> Iterator[str]:
    """Where a cell says another number than its files give, one after another."""
    if "allocation" in found:
        own = ALLOCATION.read(directory / _FILES["allocation"]).quotas
        for label in sorted(result.quotas.keys() | own.keys()):
            if result.quotas.get(label) != own.get(label):
                given = f"{_FILES['allocation']} gives {own.get(label)}"
                yield f"quotas.{label}: {result.quotas.get(label)}, but {given}"
    summaries = summarise_items(directory / ITEMS_NAME) if "items" in found else {}
    for task in sorted({name for name, _ in summaries} | result.tasks.keys()) if "items" in found else ():
        if task not in result.tasks:
            yield f"tasks.{task}: is missing, but {ITEMS_NAME} holds its items"
            continue
        stated, by_metric = result.tasks[task], {m: one for (name, m), one in summaries.items() if name == task}
        for _, one in sorted(by_metric.items()):
            if one.items != stated.items:
                yield f"tasks.{task}.items: {stated.items}, but {ITEMS_NAME} holds {one.items}"
        for metric in sorted(stated.metrics.keys() | by_metric.keys()):
            value, mean = stated.metrics.get(metric), _mean(metric, by_metric.get(metric))
            if not _same(value, mean):
                yield f"tasks.{task}.metrics.{metric}: {value}, but {ITEMS_NAME} gives {mean}"


def _mean(metric: str, summary: Summary | None) -> float | None:
    """A task's metric from its items: no accuracy while a verdict is deferred; an NLL over the items that have one."""
    if summary is None or (metric == "accuracy" and summary.undefined):
        return None
    return summary.mean


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)

"""Running a grid: what is finished is kept by content, what fails is told and left, what must stop is stopped.

Two cells whose settings, data and code are the same are made once, whatever points they belong to.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError, CalibudgetError, InterruptedRunError
from calibudget.pipeline.progress import Progress, silent
from calibudget.store import canonical_json, clean_stale, file_digest, output_directory, sha256_hex, write_atomic
from calibudget.study.records import CELL_NAME, ITEMS_NAME, Cell, CellResult, CellRunner, read_cell, write_cell

FAILURE_NAME: Final = "failure.json"


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
        results: finished cells, now or before.
        failed: what went wrong, by cell; tried again the next time.
        stopped: why cells weren't run, by cell.
    """

    results: Mapping[Cell, CellResult] = field(default_factory=dict)
    failed: Mapping[Cell, str] = field(default_factory=dict)
    stopped: Mapping[Cell, str] = field(default_factory=dict)


#: Why a cell isn't to be run, given what is finished, or None.
Stops = Callable[[Cell, Mapping[Cell, CellResult]], str | None]


def run_grid(
    planned: Iterable[Planned],
    runner: CellRunner,
    *,
    stops: Stops = lambda _cell, _results: None,
    progress: Progress = silent,
) -> GridOutcome:
    """Run what isn't finished of a grid, cell by cell.

    Args:
        planned: the cells in the order in which they are run.
        runner: makes them.
        stops: asked before each cell that isn't finished.
        progress: told how many of the cells that were left are done.

    Raises:
        ArtefactError: a folder holds a cell of other code, data or settings, or can't be written.
        InterruptedRunError: stopped on request; finished cells are kept, and the next call goes on.
    """
    planned = list(planned)
    results: dict[Cell, CellResult] = {}
    made: dict[str, Planned] = {}
    for one in planned:
        found = read_finished(one)
        if found is not None:
            results[one.cell] = found
            made.setdefault(_content(one), one)
    left = [one for one in planned if one.cell not in results]
    failed: dict[Cell, str] = {}
    stopped: dict[Cell, str] = {}
    for done, one in enumerate(left):
        progress("cells", done, len(left))
        reason = stops(one.cell, results)
        if reason is not None:
            stopped[one.cell] = reason
            continue
        try:
            same = made.get(_content(one))
            results[one.cell] = _make(one, runner, progress) if same is None else _copy(one, same, results[same.cell])
            made.setdefault(_content(one), one)
        except InterruptedRunError:
            raise
        except Exception as error:
            failed[one.cell] = f"{type(error).__name__}: {error}"
            _note_failure(one, error)
    progress("cells", len(left), len(left))
    return GridOutcome(results=results, failed=failed, stopped=stopped)


def read_finished(planned: Planned) -> CellResult | None:
    """A cell's result, None where it isn't finished.

    Raises:
        ArtefactError: the folder holds another cell, or the cell from other code, data or settings.
    """
    path = planned.directory / CELL_NAME
    if not path.exists():
        return None
    found = read_cell(path)
    if found.cell != planned.cell:
        raise ArtefactError(f"{path}: holds the cell {found.cell.name} with other fields; move it away")
    for name, digest in planned.digests.items():
        if found.digests.get(name) != digest:
            raise ArtefactError(
                f"{path}: the cell was made with other {_WORDS.get(name, name)} (digest {found.digests.get(name)}, "
                f"not {digest}); move it away to have it made anew"
            )
    items = planned.directory / ITEMS_NAME
    if ("items" in found.digests) != items.exists() or (
        items.exists() and file_digest(items).sha256 != found.digests["items"]
    ):
        raise ArtefactError(f"{items}: isn't the file that {CELL_NAME} was written with; move the cell away")
    return found


def _content(planned: Planned) -> str:
    """What two cells share that are the same work under two names."""
    return sha256_hex(canonical_json(dict(planned.digests)))


_WORDS: Final = {"protocol": "settings"}


def _make(planned: Planned, runner: CellRunner, progress: Progress) -> CellResult:
    directory = planned.directory
    with output_directory(directory):
        clean_stale(directory)
        outcome = runner.run(planned.cell, directory, progress)
        items = directory / ITEMS_NAME
        own = {"items": file_digest(items).sha256} if items.exists() else {}
        result = CellResult(cell=planned.cell, outcome=outcome, digests={**planned.digests, **own})
        write_cell(directory / CELL_NAME, result)
        (directory / FAILURE_NAME).unlink(missing_ok=True)
    return result


def _copy(planned: Planned, same: Planned, made: CellResult) -> CellResult:
    """The result of a cell that is the same work, under this cell's name."""
    with output_directory(planned.directory):
        clean_stale(planned.directory)
        items = same.directory / ITEMS_NAME
        if items.exists():
            write_atomic(planned.directory / ITEMS_NAME, items.read_bytes())
        result = replace(made, cell=planned.cell)
        write_cell(planned.directory / CELL_NAME, result)
        (planned.directory / FAILURE_NAME).unlink(missing_ok=True)
    return result


def _note_failure(planned: Planned, error: Exception) -> None:
    """Leave beside the cell why it failed; faults of our own with their trace."""
    known = isinstance(error, CalibudgetError) and error.exit_code != CalibudgetError.exit_code
    note = {
        "schema": "calibudget.failure/1",
        "cell": planned.cell.name,
        "error": type(error).__name__,
        "message": str(error),
        "trace": None if known else "".join(traceback.format_exception(error)),
    }
    planned.directory.mkdir(parents=True, exist_ok=True)  # a cell that failed at once left none
    write_atomic(planned.directory / FAILURE_NAME, canonical_json(note))

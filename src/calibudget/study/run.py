"""A study's directory: freeze it, run what is left of it, and read what it holds.

frozen.json                                   what was said before anything ran, and every amendment
calibration/<...>/scores.parquet              calibration scores that policies share
cells/<point>/<backbone>/<policy>/<seed>/     cells of the frozen version: cell.json, items.parquet, run/, ...
amended-<n>/<point>/.../                      cells that the n-th amendment changed or added
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from calibudget.errors import CalibudgetError, StudyError
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.shared_resources import Shared
from calibudget.store.files import directory_lock, output_directory, refuse_links
from calibudget.study.cell import settings_of_all
from calibudget.study.cell_records import CellResult, CellRunner
from calibudget.study.execution import (
    GridOutcome,
    Here,
    Makers,
    Planned,
    attempt,
    make,
    note_failure,
    read_finished,
    run_grid,
)
from calibudget.study.expect import check_feasible
from calibudget.study.freeze import (
    Frozen,
    Ready,
    check_freezable,
    freeze,
    make_ready,
    read_frozen,
    version_of,
)
from calibudget.study.grid import StopRule, cells_of_point
from calibudget.study.protocol import Protocol, Status, protocol_from_json
from calibudget.workers import EndedError, Engine, Pool, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """A study after a run: its grid, and how each point's results count."""

    grid: GridOutcome
    statuses: Mapping[str, Status]

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget study run`."""
        return {
            "schema": "calibudget.study-run/1",
            "finished": sorted(cell.name for cell in self.grid.results),
            "failed": {cell.name: why for cell, why in self.grid.failed.items()},
            "stopped": {cell.name: why for cell, why in self.grid.stopped.items()},
            "statuses": dict(self.statuses),
        }


def freeze_study(protocol: Protocol, directory: Path, *, amend: bool = False, progress: Progress = silent) -> Frozen:
    """Freeze a protocol, or keep a change of it; see `freeze` and `check_feasible`."""
    check_freezable(directory, amend=amend)
    with output_directory(directory):
        shared = Shared()
        settings = settings_of_all(protocol)
        version = version_of(protocol, settings, shared, progress)
        check_feasible(settings, shared, progress)
        return freeze(version, directory, amend=amend)


def run_study(
    protocol: Protocol,
    directory: Path,
    *,
    runner: CellRunner | None = None,
    engine: Engine = "local",
    workers: int = 1,
    address: str | None = None,
    progress: Progress = silent,
) -> StudyOutcome:
    """Run every cell of a frozen study that isn't finished.

    The engine is "local" for this process, where a `runner` makes the cells (the pipeline by default), or "ray" for
    actors on a cluster, so many `workers` at a time; without an address it is started on this machine.

    Raises:
        CheckFailedError: protocol, recipe, data or code aren't what is frozen.
        ArtefactError: nothing is frozen, a folder holds a foreign cell, or another process runs the study.
        StudyError: workers or an address without a cluster, or a cluster that can't run the study.
        InterruptedRunError: stopped on request; the next call goes on.
    """
    if engine == "local" and (workers > 1 or address is not None):
        raise StudyError(
            "several cells at a time are made by a Ray cluster: say engine: ray with workers or an address"
        )
    frozen = read_frozen(directory)
    with directory_lock(directory), ExitStack() as stack:
        for path in directory.iterdir():
            refuse_links(path)
        ready = make_ready(protocol, frozen, directory, progress)
        makers: Makers = Here(runner or ready.runner, progress)
        if engine == "ray":
            makers = stack.enter_context(RayMakers(directory, protocol.base_dir, workers=workers, address=address))
        grid = run_grid(ready.planned, makers, stops=StopRule(protocol=protocol), progress=progress)
    return StudyOutcome(grid=grid, statuses={name: status_of(protocol, frozen, name) for name in protocol.points})


def status_of(protocol: Protocol, frozen: Frozen, point: str) -> Status:
    """How a point's results count: confirmatory only if the frozen version said so and nothing of it changed since.

    What its cells depend on, its own definition, and how results are judged must be as they were frozen.
    """
    first = frozen.versions[0].protocol
    now = protocol.to_json()
    same = all(first.get(part) == now[part] for part in _JUDGED) and first["points"].get(point) == now["points"][point]
    as_frozen = same and all(frozen.origin(cell.name) == 0 for cell in cells_of_point(protocol, point))
    return "confirmatory" if as_frozen and protocol.points[point].status == "confirmatory" else "exploratory"


#: Parts of a protocol by which results are judged.
_JUDGED: Final = ("focus", "comparator", "endpoints", "primary", "retention", "panels", "analysis")


#: Actors that one cell may cost before it counts as failed.
_ATTEMPTS: Final = 2


class CellHandler:
    """Makes cells: the first request names the study, every other one a cell."""

    def __init__(self) -> None:
        self._ready: Ready | None = None

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The reply to one request; that to a cell says under `failed` why it wasn't made."""
        if self._ready is None:
            directory = Path(request["directory"])
            frozen = read_frozen(directory)
            protocol = protocol_from_json(frozen.last.protocol, Path(request["base_dir"]))
            self._ready = make_ready(protocol, frozen, directory, silent)
            return {}
        planned = next(one for one in self._ready.planned if one.cell.name == request["cell"])
        found = attempt(planned, partial(make, planned, self._ready.runner, silent))
        return {"failed": found if isinstance(found, str) else None}


class RayMakers(Pool):
    """See `Makers` and `Pool`; each cell takes one CPU, and one GPU where the cluster has any."""

    def __init__(self, directory: Path, base_dir: Path, *, workers: int, address: str | None = None) -> None:
        self.size = workers
        first = {"directory": str(directory.resolve()), "base_dir": str(base_dir.resolve())}
        super().__init__(
            CellHandler,
            workers=workers,
            first=lambda _: first,
            engine="ray",
            address=address,
            device="auto",
            attempts=_ATTEMPTS,
            refusal=StudyError,
        )
        self._made: dict[Future[Reply], Planned] = {}

    def start(self, planned: Planned) -> None:
        """See `Makers`; the cell waits until an actor is free."""
        self._made[self.submit(lambda: {"cell": planned.cell.name})] = planned

    def finished(self) -> list[tuple[Planned, CellResult | str]]:
        """See `Makers`.

        Raises:
            StudyError: an actor can't run this study, several ended while starting, or the cluster has no room for any.
        """
        wait(self._made, return_when=FIRST_COMPLETED)
        done = [future for future in self._made if future.done()]
        return [_outcome(self._made.pop(future), future) for future in done]


def _outcome(planned: Planned, future: Future[Reply]) -> tuple[Planned, CellResult | str]:
    try:
        failed = future.result()["failed"]
    except EndedError as ended:
        return planned, note_failure(planned, StudyError(f"making the cell ended {ended}"))
    except CalibudgetError as error:
        raise StudyError(f"a worker of the cluster can't run the study: {error}") from error
    return planned, failed or attempt(planned, partial(_read, planned))


def _read(planned: Planned) -> CellResult:
    found = read_finished(planned)
    if found is None:
        raise StudyError(f"{planned.directory}: a worker made the cell elsewhere; all nodes must see this directory")
    return found

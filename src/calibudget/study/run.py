"""A study's directory: freeze it, run what is left of it, and read what it holds.

frozen.json                                   what was said before anything ran, and every amendment
calibration/<...>/scores.parquet              calibration scores that policies share
cells/<point>/<backbone>/<policy>/<seed>/     cells of the frozen version: cell.json, items.parquet, run/, ...
amended-<n>/<point>/.../                      cells that the n-th amendment changed or added
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibudget.errors import StudyError
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.resources import Shared
from calibudget.store.files import directory_lock, output_directory
from calibudget.study.endpoints import StopRule
from calibudget.study.execution import GridOutcome, Here, Makers, read_finished, run_grid
from calibudget.study.expect import Expected, check_feasible, expect
from calibudget.study.freeze import Frozen, check_freezable, examine, freeze, read_frozen
from calibudget.study.grid import cells_of_point
from calibudget.study.plan import make_ready, plan_cells
from calibudget.study.protocol import Protocol, Status
from calibudget.study.records import CellRunner
from calibudget.workers import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """A study after a run: its grid, and how each point's results count."""

    grid: GridOutcome
    statuses: Mapping[str, Status]


def freeze_study(protocol: Protocol, directory: Path, *, amend: bool = False, progress: Progress = silent) -> Frozen:
    """Freeze a protocol, or keep a change of it; see `freezing.freeze` and `feasible.check_feasible`."""
    check_freezable(directory, amend=amend)
    with output_directory(directory):
        shared = Shared()
        subject = examine(protocol, shared, progress)
        check_feasible(subject.settings, shared, progress)
        return freeze(subject, directory, amend=amend)


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

    Args:
        protocol: must be what is frozen.
        directory: the study's.
        runner: makes the cells of this process; the pipeline by default.
        engine: "local" for this process, "ray" for actors on a cluster; see `RayMakers`.
        workers: how many cells a cluster makes at a time.
        address: a Ray cluster's; None starts one on this machine.
        progress: told how far the study is.

    Raises:
        CheckFailedError: protocol, recipe, data or code aren't what is frozen.
        ArtefactError: nothing is frozen, a folder holds a foreign cell, or another process runs the study.
        StudyError: workers or an address without a cluster, or a cluster that can't run the study.
        InterruptedRunError: stopped on request; the next call goes on.
    """
    if workers < 1:
        raise StudyError(f"workers must be at least 1, not {workers}")
    if engine == "local" and (workers > 1 or address is not None):
        raise StudyError(
            "several cells at a time are made by a Ray cluster: say engine: ray with workers or an address"
        )
    frozen = read_frozen(directory)
    with directory_lock(directory), ExitStack() as stack:
        ready = make_ready(protocol, frozen, directory, progress)
        makers: Makers = Here(runner or ready.runner, progress)
        if engine == "ray":
            from calibudget.study.cluster import RayMakers

            makers = stack.enter_context(RayMakers(directory, protocol.base_dir, workers=workers, address=address))
        grid = run_grid(ready.planned, makers, stops=StopRule(protocol=protocol), progress=progress)
    return StudyOutcome(grid=grid, statuses={name: status_of(protocol, frozen, name) for name in protocol.points})


def expect_study(protocol: Protocol, directory: Path | None, *, progress: Progress = silent) -> dict[str, Expected]:
    """What a study will take, or what is left of it where a directory is given; nothing is run or written.

    Raises:
        ArtefactError: nothing is frozen in the directory, or a folder holds a foreign cell.
        StudyError: a point that no quotas over its pools can meet, where the sources are at hand.
    """
    if directory is None:
        return expect(protocol, progress=progress)
    planned = plan_cells(protocol, read_frozen(directory), directory)
    return expect(protocol, [one for one in map(read_finished, planned) if one is not None], progress=progress)


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

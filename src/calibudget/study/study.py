"""A study's directory: freeze it, run what is left of it, and read what it holds.

frozen.json                                   what was said before anything ran, and every amendment
calibration/<...>/scores.parquet              calibration scores that policies share
cells/<point>/<backbone>/<policy>/<seed>/     cells of the frozen version: cell.json, items.parquet, run/, ...
amended-<n>/<point>/.../                      cells that the n-th amendment changed or added
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.shared import Shared
from calibudget.store import directory_lock, output_directory
from calibudget.study.endpoints import stop_rule
from calibudget.study.executing import GridOutcome, Planned, read_finished, run_grid
from calibudget.study.expected import Expected, expect
from calibudget.study.freezing import Frozen, check, check_freezable, examine, freeze, read_frozen
from calibudget.study.grid import cells_of, cells_of_point
from calibudget.study.protocol import Protocol, Status
from calibudget.study.records import CellRunner
from calibudget.study.runner import PipelineRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """A study after a run: its grid, and how each point's results count."""

    grid: GridOutcome
    statuses: Mapping[str, Status]


def freeze_study(protocol: Protocol, directory: Path, *, amend: bool = False, progress: Progress = silent) -> Frozen:
    """Freeze a protocol, or keep a change of it; see `freezing.freeze`."""
    check_freezable(directory, amend=amend)
    with output_directory(directory):
        return freeze(examine(protocol, Shared(), progress), directory, amend=amend)


def run_study(
    protocol: Protocol, directory: Path, *, runner: CellRunner | None = None, progress: Progress = silent
) -> StudyOutcome:
    """Run every cell of a frozen study that isn't finished.

    Args:
        protocol: must be what is frozen.
        directory: the study's.
        runner: makes the cells; the pipeline by default.
        progress: told how far the study is.

    Raises:
        CheckFailedError: protocol, recipe, data or code aren't what is frozen.
        ArtefactError: nothing is frozen, a folder holds a foreign cell, or another process runs the study.
        InterruptedRunError: stopped on request; the next call goes on.
    """
    frozen = read_frozen(directory)
    with directory_lock(directory):
        shared = Shared()
        subject = examine(protocol, shared, progress)
        check(subject, frozen, directory)
        planned = plan_cells(protocol, frozen, directory)
        if runner is None:
            digests = {name: subject.version.digests[name] for name in ("data", "code")}
            runner = PipelineRunner(
                protocol=protocol, settings=subject.settings, directory=directory, digests=digests, shared=shared
            )
        grid = run_grid(planned, runner, stops=stop_rule(protocol), progress=progress)
    return StudyOutcome(grid=grid, statuses={name: status_of(protocol, frozen, name) for name in protocol.points})


def expect_study(protocol: Protocol, directory: Path | None, *, progress: Progress = silent) -> dict[str, Expected]:
    """What a study will take, or what is left of it where a directory is given; nothing is run or written.

    Raises:
        ArtefactError: nothing is frozen in the directory, or a folder holds a foreign cell.
    """
    if directory is None:
        return expect(protocol, progress=progress)
    planned = plan_cells(protocol, read_frozen(directory), directory)
    return expect(protocol, [one for one in map(read_finished, planned) if one is not None], progress=progress)


def plan_cells(protocol: Protocol, frozen: Frozen, directory: Path) -> tuple[Planned, ...]:
    """Every cell of the version in force, in the folder of the version from which on nothing that it needs changed."""
    return tuple(
        Planned(
            cell=cell,
            directory=directory / version_folder(frozen.origin(cell.name)) / cell.name,
            digests=frozen.last.depends(cell.name) or {},
        )
        for cell in cells_of(protocol)
    )


def version_folder(number: int) -> str:
    """Where the cells of the frozen version (0) or of an amendment lie."""
    return f"amended-{number}" if number else "cells"


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

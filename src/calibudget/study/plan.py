"""A frozen study made ready to run: its cells, each in its folder, and the runner that makes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibudget.pipeline.progress import Progress
from calibudget.pipeline.resources import Shared
from calibudget.study.cell import PipelineRunner
from calibudget.study.execution import Planned
from calibudget.study.freeze import Frozen, check, examine
from calibudget.study.grid import cells_of
from calibudget.study.protocol import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a study runs: all its cells, finished or not, and who makes them in this process."""

    planned: tuple[Planned, ...]
    runner: PipelineRunner


def make_ready(protocol: Protocol, frozen: Frozen, directory: Path, progress: Progress) -> Ready:
    """Hold a protocol and all that it needs to what is frozen, and plan its cells.

    Raises:
        CheckFailedError: protocol, recipe, data or code aren't what is frozen.
        InputError: what the cells need can't be read.
    """
    shared = Shared()
    subject = examine(protocol, shared, progress)
    check(subject, frozen, directory)
    digests = {name: subject.version.digests[name] for name in ("data", "code")}
    runner = PipelineRunner(
        protocol=protocol, settings=subject.settings, directory=directory, digests=digests, shared=shared
    )
    return Ready(planned=plan_cells(protocol, frozen, directory), runner=runner)


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

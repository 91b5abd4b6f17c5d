"""Cells made by actors of a Ray cluster.

Each actor holds the study to what is frozen itself, and writes its cells into the study's directory, which all nodes
must see under one path, as they must the data and the models. An actor that ends costs its cell one more attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import Any, Final

from calibudget.errors import CalibudgetError, StudyError
from calibudget.pipeline.progress import silent
from calibudget.study.execution import Planned, attempt, make, read_finished
from calibudget.study.freeze import protocol_of, read_frozen
from calibudget.study.plan import Ready, make_ready
from calibudget.study.records import CellResult
from calibudget.workers import EndedError, Pool, Reply

#: Actors that one cell may cost before it counts as failed.
_ATTEMPTS: Final = 2


class CellDesk:
    """Makes cells: the first request names the study, every other one a cell."""

    def __init__(self) -> None:
        self._ready: Ready | None = None

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The reply to one request; that to a cell says under `failed` why it wasn't made."""
        if self._ready is None:
            directory = Path(request["directory"])
            frozen = read_frozen(directory)
            self._ready = make_ready(protocol_of(frozen.last, Path(request["base_dir"])), frozen, directory, silent)
            return {}
        planned = next(one for one in self._ready.planned if one.cell.name == request["cell"])
        found = attempt(planned, partial(make, planned, self._ready.runner, silent))
        return {"failed": found if isinstance(found, str) else None}


class RayMakers(Pool):
    """See `Makers`; use it as a context manager.

    Args:
        directory: the study's.
        base_dir: where relative paths of the protocol start.
        workers: how many cells are made at a time; each takes one CPU, and one GPU where the cluster has any.
        address: as `Pool` has it.

    Raises:
        DependencyError: ray isn't installed.
        StudyError: no cluster at the address.
    """

    def __init__(self, directory: Path, base_dir: Path, *, workers: int, address: str | None = None) -> None:
        self.size = workers
        first = {"directory": str(directory.resolve()), "base_dir": str(base_dir.resolve())}
        super().__init__(
            CellDesk,
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
        return planned, attempt(planned, partial(_give_up, ended))
    except CalibudgetError as error:
        raise StudyError(f"a worker of the cluster can't run the study: {error}") from error
    return planned, failed or attempt(planned, partial(_read, planned))


def _read(planned: Planned) -> CellResult:
    found = read_finished(planned)
    if found is None:
        raise StudyError(f"{planned.directory}: a worker made the cell elsewhere; all nodes must see this directory")
    return found


def _give_up(ended: EndedError) -> CellResult:
    raise StudyError(f"making the cell ended {ended}")

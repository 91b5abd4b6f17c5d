"""Cells made by actors of a Ray cluster.

Each actor holds the study to what is frozen itself, and writes its cells into the study's directory, which all nodes
must see under one path, as they must the data and the models. An actor that dies costs its cell one more attempt.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from calibudget.cluster import Actors
from calibudget.errors import CalibudgetError, StudyError
from calibudget.pipeline.progress import silent
from calibudget.study.execution import Planned, attempt, make, read_finished
from calibudget.study.freeze import protocol_of, read_frozen
from calibudget.study.plan import Ready, make_ready
from calibudget.study.records import CellResult

#: Actors that one cell may cost before it counts as failed.
_ATTEMPTS: Final = 2
#: Actors that may end while they start, one after another, before the study does.
_STARTS: Final = 3


class CellDesk:
    """A worker's own part: the first request names the study, every other one a cell to make."""

    def __init__(self) -> None:
        self._ready: Ready | None = None

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The reply to one request: `error`, why the study can't be run here, or `failed`, why the cell wasn't made."""
        if self._ready is None:
            try:
                self._ready = _open(Path(request["directory"]), Path(request["base_dir"]))
            except CalibudgetError as error:
                return {"error": str(error)}
            return {}
        planned = next(one for one in self._ready.planned if one.cell.name == request["cell"])
        found = attempt(planned, partial(make, planned, self._ready.runner, silent))
        return {"failed": found if isinstance(found, str) else None}


def _open(directory: Path, base_dir: Path) -> Ready:
    frozen = read_frozen(directory)
    return make_ready(protocol_of(frozen.last, base_dir), frozen, directory, silent)


class RayMakers:
    """See `Makers`; use it as a context manager.

    Args:
        directory: the study's.
        base_dir: where relative paths of the protocol start.
        workers: how many cells are made at a time; each takes one CPU, and one GPU where the cluster has any.
        address: an existing cluster's ("auto" finds the one of this machine); None starts Ray on this machine and
            ends it with the study. A connection that this process has already is used as it is.

    Raises:
        DependencyError: ray isn't installed.
        StudyError: no cluster at the address.
    """

    def __init__(self, directory: Path, base_dir: Path, *, workers: int, address: str | None = None) -> None:
        self.size = workers
        first = {"directory": str(directory.resolve()), "base_dir": str(base_dir.resolve())}
        self._actors = Actors(CellDesk, lambda _: first, address=address, refusal=StudyError)
        self._waiting: deque[Planned] = deque()
        self._at_work: dict[int, Planned] = {}
        self._starting: set[int] = set()
        self._free: set[int] = set()
        self._failed_starts = 0
        self._deaths = Counter[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._actors.close()

    def start(self, planned: Planned) -> None:
        """See `Makers`; the cell waits until an actor is free."""
        self._waiting.append(planned)

    def finished(self) -> list[tuple[Planned, CellResult | str]]:
        """See `Makers`.

        Raises:
            StudyError: an actor can't run this study, several ended while starting, or the cluster has no room for any.
        """
        found: list[tuple[Planned, CellResult | str]] = []
        while not found:
            self._deal()
            for place, reply in self._actors.replies():
                if place in self._starting:
                    self._starting.remove(place)
                    self._greet(place, reply)
                else:
                    found.extend(self._settle(place, self._at_work.pop(place), reply))
        return found

    def _deal(self) -> None:
        """Start as many actors as cells wait for, as far as there are places; give a cell to each that is free."""
        taken = self._free | self._starting | self._at_work.keys()
        vacant = [place for place in range(self.size) if place not in taken]
        for place in vacant[: max(len(self._waiting) - len(self._free | self._starting), 0)]:
            self._actors.start(place)
            self._starting.add(place)
        while self._waiting and self._free:
            place = self._free.pop()
            self._at_work[place] = self._waiting.popleft()
            self._actors.send(place, {"cell": self._at_work[place].cell.name})

    def _greet(self, place: int, reply: Mapping[str, Any] | None) -> None:
        if reply is not None and "error" in reply:
            raise StudyError(f"a worker of the cluster can't run the study: {reply['error']}")
        if reply is not None:
            self._failed_starts = 0
            self._free.add(place)
            return
        how = self._actors.end(place)
        self._failed_starts += 1
        if self._failed_starts == _STARTS:
            raise StudyError(f"{_STARTS} workers ended while starting, the last with {how}")

    def _settle(
        self, place: int, planned: Planned, reply: Mapping[str, Any] | None
    ) -> Iterator[tuple[Planned, CellResult | str]]:
        """What became of a cell; nothing yet if it is tried again."""
        if reply is not None:
            self._free.add(place)
            yield planned, reply["failed"] or attempt(planned, partial(_read, planned))
            return
        how = self._actors.end(place)
        self._deaths[planned.cell.name] += 1
        if self._deaths[planned.cell.name] < _ATTEMPTS:
            self._waiting.appendleft(planned)
        else:
            yield planned, attempt(planned, partial(_give_up, how))


def _read(planned: Planned) -> CellResult:
    found = read_finished(planned)
    if found is None:
        raise StudyError(f"{planned.directory}: a worker made the cell elsewhere; all nodes must see this directory")
    return found


def _give_up(how: str) -> CellResult:
    raise StudyError(f"making the cell ended {_ATTEMPTS} workers, the last with {how}")

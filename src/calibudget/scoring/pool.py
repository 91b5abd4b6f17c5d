"""Scoring with several workers, wherever they are: batches are planned once and dealt out as workers become free.

What comes back doesn't depend on who scored it. A worker that dies costs its batch, which another one scores; a batch
that keeps killing workers is named.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from calibudget.errors import ScoringError
from calibudget.messages import counted
from calibudget.scoring.desk import checked, work_request
from calibudget.scoring.scorer import CalibrationItem, Measurement, measurement_from_json

#: Workers that one batch may cost before it is given up.
_ATTEMPTS: Final = 3


class Crew(Protocol):
    """Workers by their place, each with a `Desk`; the shipped crews are `Processes` and `Actors`."""

    def start(self, place: int) -> None:
        """Start a worker and send it its settings; its first reply is the description."""
        ...

    def send(self, place: int, request: Mapping[str, object]) -> None:
        """Send a request to a worker that owes no reply."""
        ...

    def replies(self) -> list[tuple[int, Mapping[str, Any] | None]]:
        """Wait for the next replies, at least one; None for a worker that died over its request."""
        ...

    def end(self, place: int) -> str:
        """End a worker, dead or alive, and say how it ended; one that is gone already is left alone."""
        ...

    def close(self) -> None:
        """End all workers and let go of everything."""
        ...


class Pool:
    """A scorer made of a crew; use it as a context manager.

    Args:
        crew: the workers.
        size: how many of them.

    Raises:
        ScoringError: fewer than one worker.
    """

    def __init__(self, crew: Crew, size: int) -> None:
        if size < 1:
            raise ScoringError(f"workers must be at least 1, not {size}")
        self._crew = crew
        self._size = size
        self._starting: set[int] = set()
        self._free: set[int] = set()
        self._failed_starts = 0
        self._described: Mapping[str, object] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._starting.clear()
        self._free.clear()
        self._crew.close()

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`: what one worker's scorer says, since who the workers are changes nothing."""
        while not self._described:
            self._hire(1)
            self._replies()
        return self._described

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`."""
        return list(self._ask("lengths", items))

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`."""
        return [tuple(batch) for batch in self._ask("batches", items)]

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """See `Scorer`; one batch by itself."""
        return next(self.measure_batches({0: items}))[1]

    def measure_batches(
        self, batches: Mapping[int, Sequence[CalibrationItem]]
    ) -> Iterator[tuple[int, list[Measurement]]]:
        """Score many batches at once; each is given back with its number as soon as it is done.

        Raises:
            ScoringError: an item that can't be scored, or a batch that killed several workers.
        """
        waiting, attempts = deque(batches), Counter[int]()
        at_work: dict[int, int] = {}
        try:
            while waiting or at_work:
                self._hire(len(waiting), at_work)
                while waiting and self._free:
                    place = min(self._free)
                    self._free.remove(place)
                    at_work[place] = waiting.popleft()
                    self._crew.send(place, work_request("measurements", batches[at_work[place]]))
                for place, reply in self._replies():
                    number = at_work.pop(place)
                    if reply is None:
                        attempts[number] += 1
                        self._bury(place, batches[number], attempts[number])
                        waiting.appendleft(number)
                    else:
                        self._free.add(place)
                        yield number, [measurement_from_json(row) for row in checked(reply)["measurements"]]
        finally:
            for place in at_work:
                self._crew.end(place)

    def _hire(self, wanted: int, at_work: Collection[int] = ()) -> None:
        """Start workers until so many are free or will be, as far as there are places."""
        hired = self._free | self._starting
        vacant = [place for place in range(self._size) if place not in hired and place not in at_work]
        for place in vacant[: max(wanted - len(hired), 0)]:
            self._crew.start(place)
            self._starting.add(place)

    def _replies(self) -> list[tuple[int, Mapping[str, Any] | None]]:
        """Wait for replies, greet workers that have just started, and give back the others' replies."""
        answers = []
        for place, reply in self._crew.replies():
            if place in self._starting:
                self._starting.remove(place)
                self._greet(place, reply)
            else:
                answers.append((place, reply))
        return answers

    def _greet(self, place: int, reply: Mapping[str, Any] | None) -> None:
        if reply is None or "error" in reply:
            how = self._crew.end(place)
            self._failed_starts += 1
            checked(reply or {})
            if self._failed_starts == _ATTEMPTS:
                raise ScoringError(f"{_ATTEMPTS} scoring workers ended while starting, the last with {how}")
            return
        self._failed_starts = 0
        self._described = self._described or reply["describe"]
        if reply["describe"] != self._described:
            self._crew.end(place)
            raise ScoringError(
                "the workers' scorers differ (one has no GPU of its own, say), so their scores would too: "
                f"{self._described} and {reply['describe']}"
            )
        self._free.add(place)

    def _bury(self, place: int, items: Sequence[CalibrationItem], attempts: int) -> None:
        how = self._crew.end(place)
        if attempts == _ATTEMPTS:
            raise ScoringError(
                f"{items[0].name}: scoring its batch of {len(items)} ended {counted(attempts, 'worker')} "
                f"(the last with {how})"
            )

    def _ask(self, what: str, items: Sequence[CalibrationItem]) -> Any:
        """One worker's answer to a question that all answer alike."""
        how = ""
        for _ in range(_ATTEMPTS):
            while not self._free:
                self._hire(1)
                self._replies()
            place = min(self._free)
            self._free.remove(place)
            self._crew.send(place, work_request(what, items))
            answers = self._replies()
            while not answers:
                answers = self._replies()
            reply = answers[0][1]
            if reply is not None:
                self._free.add(place)
                return checked(reply)[what]
            how = self._crew.end(place)
        raise ScoringError(f"{_ATTEMPTS} scoring workers ended when asked for {what}, the last with {how}")

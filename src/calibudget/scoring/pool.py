"""Scoring with several processes of this machine, one a GPU (or a share of the CPU).

Batches are planned once and dealt out as workers become free; what comes back doesn't depend on who scored it. A
worker that dies costs its batch, which another one scores; a batch that keeps killing workers is named.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from calibudget.errors import DependencyError, ScoringError
from calibudget.scoring.items import CalibrationItem, Measurement
from calibudget.scoring.settings import ScorerSettings
from calibudget.scoring.wire import item_to_json, measurement_from_json
from calibudget.wording import counted

#: Workers that one batch may cost before it is given up.
_ATTEMPTS: Final = 3


class LocalPool:
    """A scorer made of several worker processes; use it as a context manager.

    Args:
        settings: what each worker makes its scorer of.
        workers: how many; on GPUs worker i sees GPU i alone, on CPU they share the cores.

    Raises:
        ScoringError: fewer than one worker.
    """

    def __init__(self, settings: ScorerSettings, *, workers: int) -> None:
        if workers < 1:
            raise ScoringError(f"workers must be at least 1, not {workers}")
        self._settings = settings
        self._size = workers
        self._workers: dict[int, _Worker] = {}
        self._described: Mapping[str, object] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`: what one worker's scorer says, since the number of workers changes nothing."""
        return self._described or self._ask_first("describe", ())

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`."""
        return list(self._ask_first("lengths", items))

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`."""
        return [tuple(batch) for batch in self._ask_first("batches", items)]

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
        waiting = deque(batches)
        attempts = dict.fromkeys(batches, 0)
        at_work: dict[int, int] = {}
        for place in range(min(self._size, len(batches))):
            self._worker(place)
        try:
            with selectors.DefaultSelector() as selector:
                while waiting or at_work:
                    for place in range(self._size):
                        if place not in at_work and waiting:
                            at_work[place] = waiting.popleft()
                            self._give(selector, place, batches[at_work[place]])
                    for place in sorted(key.data for key, _ in selector.select()):
                        number, worker = at_work.pop(place), self._workers[place]
                        selector.unregister(worker.output)
                        reply = worker.receive()
                        if reply is not None:
                            yield number, [measurement_from_json(row) for row in reply["measurements"]]
                            continue
                        attempts[number] += 1
                        self._bury(place, batches[number], attempts[number])
                        waiting.appendleft(number)
        finally:
            for place in at_work:
                self._workers.pop(place).end()

    def _give(self, selector: selectors.BaseSelector, place: int, items: Sequence[CalibrationItem]) -> None:
        worker = self._worker(place)
        described = worker.describe()
        if described is not None:
            self._check_alike(described)
            worker.send("measure", items)
        selector.register(worker.output, selectors.EVENT_READ, place)

    def _check_alike(self, described: Mapping[str, object]) -> None:
        self._described = self._described or described
        if described != self._described:
            raise ScoringError(
                "the workers' scorers differ (one has no GPU of its own, say), so their scores would too: "
                f"{self._described} and {described}"
            )

    def _bury(self, place: int, items: Sequence[CalibrationItem], attempts: int) -> None:
        code = self._workers.pop(place).end()
        if attempts == _ATTEMPTS:
            raise ScoringError(
                f"{items[0].name}: scoring its batch of {len(items)} ended {counted(attempts, 'worker')} "
                f"(the last with exit code {code})"
            )

    def _worker(self, place: int) -> _Worker:
        if place not in self._workers:
            self._workers[place] = _Worker(self._settings, place, self._size)
        return self._workers[place]

    def _ask_first(self, what: str, items: Sequence[CalibrationItem]) -> Any:
        """The first worker's answer to a question that every worker answers alike."""
        code = 0
        for _ in range(_ATTEMPTS):
            worker = self._worker(0)
            described = worker.describe()
            if described is not None:
                self._check_alike(described)
                reply = {what: described} if what == "describe" else worker.ask(what, items)
                if reply is not None:
                    return reply[what]
            code = self._workers.pop(0).end()
        raise ScoringError(f"{_ATTEMPTS} scoring workers ended while starting, the last with exit code {code}")


class _Worker:
    """One worker process and the two ends of its pipes."""

    def __init__(self, settings: ScorerSettings, place: int, size: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "calibudget.scoring.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(settings, place, size),
        )
        self._described: Mapping[str, object] | None = None
        self._write({"settings": settings.to_json()})

    @property
    def _input(self) -> Any:
        return self._process.stdin

    @property
    def output(self) -> Any:
        """The end of the pipe that replies come from; one request has one reply."""
        return self._process.stdout

    def describe(self) -> Mapping[str, object] | None:
        """What the worker's scorer says of itself, once it is made; None if the worker died before that."""
        if self._described is None:
            reply = self.receive()
            self._described = None if reply is None else reply["describe"]
        return self._described

    def ask(self, what: str, items: Sequence[CalibrationItem]) -> Mapping[str, Any] | None:
        """Send a request and wait for its reply, None if the worker died."""
        self.send(what, items)
        return self.receive()

    def send(self, what: str, items: Sequence[CalibrationItem]) -> None:
        """Send a request; a worker that has died is noticed when its reply is awaited."""
        self._write({"do": what, "items": [item_to_json(item) for item in items]})

    def receive(self) -> dict[str, Any] | None:
        """The next reply, None if the worker died.

        Raises:
            ScoringError, DependencyError: what the worker's scorer raised.
        """
        line = self.output.readline()
        if not line.endswith(b"\n"):
            return None
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise {"dependency": DependencyError}.get(reply["kind"], ScoringError)(reply["error"])
        return reply

    def end(self) -> int:
        """End the process and return its exit code."""
        self._process.kill()
        self.output.close()
        with suppress(BrokenPipeError):
            self._input.close()
        return self._process.wait()

    def _write(self, value: Mapping[str, object]) -> None:
        with suppress(BrokenPipeError):
            self._input.write(json.dumps(value).encode("ascii") + b"\n")
            self._input.flush()


def _environment(settings: ScorerSettings, place: int, size: int) -> dict[str, str]:
    """A worker's own GPU, or its share of the cores."""
    own = dict(os.environ)
    if settings.device == "cpu":
        own["CUDA_VISIBLE_DEVICES"] = ""
    else:
        visible = [device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
        own["CUDA_VISIBLE_DEVICES"] = visible[place % len(visible)] if visible else str(place)
    own.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // size, 1)))
    return own

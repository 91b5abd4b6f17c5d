"""Workers that are processes of this machine, one a GPU (or a share of the CPU), asked through pipes."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from calibudget.scoring.desk import settings_request
from calibudget.scoring.pool import Pool
from calibudget.scoring.settings import ScorerSettings


class LocalPool(Pool):
    """A scorer made of several worker processes; use it as a context manager.

    Args:
        settings: what each worker makes its scorer of.
        workers: how many; on GPUs worker i sees GPU i alone, on CPU they share the cores.

    Raises:
        ScoringError: fewer than one worker.
    """

    def __init__(self, settings: ScorerSettings, *, workers: int) -> None:
        super().__init__(Processes(settings, workers), workers)


class Processes:
    """See `Crew`."""

    def __init__(self, settings: ScorerSettings, size: int) -> None:
        self._settings = settings
        self._size = size
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._selector = selectors.DefaultSelector()

    def start(self, place: int) -> None:
        """See `Crew`."""
        self._started[place] = subprocess.Popen(
            [sys.executable, "-m", "calibudget.scoring.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(self._settings, place, self._size),
        )
        self.send(place, settings_request(self._settings))

    def send(self, place: int, request: Mapping[str, object]) -> None:
        """See `Crew`; a worker that has died is noticed when its reply is awaited."""
        requests, replies = self._pipes(place)
        with suppress(BrokenPipeError):
            requests.write(json.dumps(request).encode("ascii") + b"\n")
            requests.flush()
        self._selector.register(replies, selectors.EVENT_READ, place)

    def replies(self) -> list[tuple[int, Mapping[str, Any] | None]]:
        """See `Crew`."""
        found: list[tuple[int, Mapping[str, Any] | None]] = []
        for place in sorted(key.data for key, _ in self._selector.select()):
            _, replies = self._pipes(place)
            self._selector.unregister(replies)
            line = replies.readline()
            found.append((place, json.loads(line) if line.endswith(b"\n") else None))
        return found

    def end(self, place: int) -> str:
        """See `Crew`."""
        if place not in self._started:
            return "nothing to tell"
        requests, replies = self._pipes(place)
        with suppress(KeyError):
            self._selector.unregister(replies)
        process = self._started.pop(place)
        process.kill()
        replies.close()
        with suppress(BrokenPipeError):
            requests.close()
        return f"exit code {process.wait()}"

    def close(self) -> None:
        """See `Crew`."""
        for place in list(self._started):
            self.end(place)
        self._selector.close()

    def _pipes(self, place: int) -> tuple[IO[bytes], IO[bytes]]:
        process = self._started[place]
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a worker was started without pipes")
        return process.stdin, process.stdout


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

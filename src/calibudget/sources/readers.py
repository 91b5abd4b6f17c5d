"""Who reads the inputs of sources: this process, several of this machine, or tasks of a Ray cluster.

Whoever reads makes the same file of identities, so that nothing after it depends on who that was. Small inputs are
always read here: sending them away would take longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final, Literal, Self

from calibudget.cluster import connect, ray_module
from calibudget.errors import CalibudgetError, DataError
from calibudget.sources.index import Identities, find_or_make, is_large, read_identities
from calibudget.sources.inputs import FileInput, Input
from calibudget.sources.spec import SourceSpec
from calibudget.sources.table import Scratch, writing
from calibudget.sources.worker import Request, pieces, to_json

_HERE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How sources are read; none of it changes a byte of what is found.

    Attributes:
        engine: "local" for this machine, "ray" for tasks on a cluster.
        workers: how many inputs are read at once; 1 with "local" is this process.
        address: a Ray cluster's; None starts one on this machine.
        cache: the folder where identities and findings are kept for the next time, None to keep nothing.
    """

    engine: Literal["local", "ray"] = "local"
    workers: int = 1
    address: str | None = None
    cache: Path | None = None


class Readers:
    """Makes files of identities; a context manager, whose workers start when they are needed and end with the block."""

    def __init__(self, reading: Reading | None = None) -> None:
        self._reading = reading or Reading()
        self._scratch = Scratch()
        self._stack = ExitStack()
        self._workers: Processes | Tasks | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def ask(self, spec: SourceSpec, given: Input) -> Callable[[], Identities]:
        """A function that gives the identities of an input, waiting for them if need be.

        Raises:
            DataError: from the function: the input can't be read, or a row can't be used and isn't to be skipped.
        """
        folder, cache = self._scratch.folder(), self._reading.cache
        is_here = self._reading.engine == "local" and self._reading.workers == _HERE
        if is_here or not isinstance(given, FileInput) or not is_large(given):
            return partial(find_or_make, spec, given, folder, cache)
        return self._send(Request(spec=spec, file=given.file, folder=folder, cache=cache))

    def _send(self, request: Request) -> Callable[[], Identities]:
        if self._threads is None or self._workers is None:
            self._workers = Tasks(self._reading.address) if self._reading.engine == "ray" else Processes()
            self._stack.callback(self._workers.close)
            self._threads = ThreadPoolExecutor(self._reading.workers)
        away = self._workers.make
        return partial(_found, self._threads.submit(away, request), away, request)


def _found(waiting: Future[Path], away: Callable[[Request], Path], request: Request) -> Identities:
    """What a reader made, opened only now: of many inputs one file is open at a time."""
    path = waiting.result()
    found = read_identities(path, request.spec)
    if found is None and path.parent == request.cache:  # removed from the cache meanwhile, as anybody may
        path = away(replace(request, cache=None))
        found = read_identities(path, request.spec)
    if found is None:
        raise CalibudgetError(f"{path.name}: what a reader wrote isn't what came")
    return replace(found, is_kept=path.parent == request.cache)


class Processes:
    """Processes of this machine, as many as threads ask at once."""

    def __init__(self) -> None:
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []
        self._starting = Lock()
        self._is_closed = False

    def make(self, request: Request) -> Path:
        """Where the file lies that a process made.

        Raises:
            DataError: the input can't be read or used.
            CalibudgetError: the process ended.
        """
        try:
            process = self._idle.get_nowait()
        except Empty:
            process = self._start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a reader was started without pipes")
        with suppress(BrokenPipeError):
            process.stdin.write(to_json(request) + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise CalibudgetError(
                f"{request.file.name}: the process that read it ended with exit code {process.wait()}"
            )
        self._idle.put(process)
        return Path(_reply(line))

    def close(self) -> None:
        """End all processes; one that a thread is starting is waited for, and no other starts."""
        with self._starting:
            self._is_closed = True
        for process in self._started:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._is_closed:
                raise CalibudgetError("the readers were closed before this input's turn")
            process = subprocess.Popen(
                [sys.executable, "-m", "calibudget.sources.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._started.append(process)
        return process


class Tasks:
    """Tasks of a Ray cluster that take one CPU each; every node needs calibudget, and the data at the same path."""

    def __init__(self, address: str | None) -> None:
        self._ray = ray_module()
        self._connected_here = connect(self._ray, address, DataError)
        self._task = self._ray.remote(pieces).options(num_cpus=1, num_returns="streaming")
        self._running: set[Any] = set()

    def make(self, request: Request) -> Path:
        """Where the file lies that a task made and sent.

        Raises:
            DataError: the input can't be read or used.
            CalibudgetError: the task failed.
        """
        path = request.folder / f"{os.urandom(16).hex()}.identities"
        coming = self._task.remote(to_json(request).decode("ascii"))
        self._running.add(coming)
        try:
            with writing(request.folder), path.open("xb") as handle:
                for piece in map(self._ray.get, coming):
                    if isinstance(piece, str):
                        _reply(piece)
                    else:
                        handle.write(piece)
        except self._ray.exceptions.RayError as error:
            raise CalibudgetError(f"{request.file.name}: the task that read it failed: {error}") from error
        finally:
            self._running.discard(coming)
        return path

    def close(self) -> None:
        """Cancel what still runs; Ray itself is ended where it was started here."""
        for coming in list(self._running):
            self._ray.cancel(coming, force=True)
        if self._connected_here:
            self._ray.shutdown()


def _reply(line: bytes | str) -> str:
    reply = json.loads(line)
    if "error" in reply:
        raise DataError(reply["error"])
    return str(reply["path"])

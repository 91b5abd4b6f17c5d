"""Workers: processes of this machine or actors of a Ray cluster, which answer requests; one seam for both.

A `Pool` deals jobs to its workers as they become free, a thread a worker. Requests and replies are JSON objects; no
user data is pickled. A worker that ends over a job costs that job only, which another worker does again, up to so many
times. An error that calibudget raises on purpose in a worker is raised here as it is. Nothing that comes back depends
on who made it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, as_completed, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from calibudget.errors import CalibudgetError, InputError, requires
from calibudget.hardware import Device
from calibudget.messages import counted
from calibudget.worker_main import Handler, Served

Engine = Literal["local", "ray"]
Request = Mapping[str, object]
Reply = Mapping[str, Any]
Key = TypeVar("Key")

#: Workers that one job may cost, and that may end while starting, one after another.
ATTEMPTS: Final = 3
#: Seconds that all workers may wait for room on a cluster while none is at work; an autoscaler needs minutes.
PATIENCE: Final = 600.0


class EndedError(Exception):
    """A worker ended, or a job ended as many as it may; the text says how the last one did."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    """A job; `request` is None where only the first reply of a worker is wanted."""

    request: Callable[[], Request] | None
    folder: Path | None
    future: Future[Reply] = field(default_factory=Future)
    endings: int = 0
    is_abandoned: bool = False


class Pool:
    """Workers that start when jobs wait for them; use it as a context manager, with which they end.

    Args:
        handler: what answers in each worker.
        workers: how many at most.
        first: each worker's first request, given the device that workers get; None for none.
        on_first_reply: told of each worker's first reply; what it raises is raised from the jobs that wait.
        engine: "local" for processes of this machine, "ray" for actors of a cluster, each on one CPU; every node needs
            calibudget, and the files that requests name.
        address: a cluster's ("auto" finds the one of this machine); None starts Ray on this machine and ends it with
            the pool. A connection that this process has already is used as it is.
        device: None where nothing is to be shared out; "auto" of a cluster is a GPU where it has any.
        gpus: for each worker on GPUs. Process i sees the i-th such group alone; on CPU processes share the cores.
        attempts: workers that one job may cost.
        refusal: the error to raise where no worker can be had.
        patience: seconds to wait for room on a cluster while no worker is at work.

    Raises:
        InputError: fewer than one worker, or no cluster at the address, as `refusal`.
        DependencyError: ray isn't installed.
    """

    def __init__(
        self,
        handler: type[Handler],
        *,
        workers: int,
        first: Callable[[Device | None], Request] | None = None,
        on_first_reply: Callable[[Reply], None] = lambda _: None,
        engine: Engine = "local",
        address: str | None = None,
        device: Device | None = None,
        gpus: int = 1,
        attempts: int = ATTEMPTS,
        refusal: type[InputError] = InputError,
        patience: float = PATIENCE,
    ) -> None:
        if workers < 1:
            raise refusal(f"workers must be at least 1, not {workers}")
        name = f"{handler.__module__}:{handler.__qualname__}"
        self._stack = ExitStack()
        self._start: Callable[[int], _Process | _Actor]
        if engine == "ray":
            ray = self._stack.enter_context(_connection(address, refusal))
            if device == "auto":
                device = "cuda" if ray.cluster_resources().get("GPU", 0) else "cpu"
            needs = {"num_cpus": 1, "num_gpus": gpus if device == "cuda" else 0}
            self._start = lambda _: _Actor(ray, needs, name)
        else:
            self._start = lambda place: _Process(name, _environment(device, gpus, place, workers))
        self._first = None if first is None else first(device)
        self._on_first_reply, self._refusal = on_first_reply, refusal
        self._attempts, self._patience = attempts, patience
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[_Job] = deque()
        self._at_work: dict[int, _Job] = {}
        self._workers: dict[int, _Process | _Actor] = {}
        self._free_places = set(range(workers))
        self._threads: dict[int, threading.Thread] = {}
        self._failed_starts = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers, and Ray itself where it was started here; jobs that wait are cancelled."""
        with self._changed:
            self._is_closed = True
            self.abandon([job.future for job in [*self._waiting, *self._at_work.values()]])
            for worker in self._workers.values():
                worker.end()
            self._changed.notify_all()
        for thread in self._threads.values():
            thread.join()
        self._stack.close()

    def submit(self, request: Callable[[], Request] | None, *, folder: Path | None = None) -> Future[Reply]:
        """Have a job done.

        The request is made when a worker is free for it; None asks for a worker's first reply. A file that the worker
        makes goes into `folder`, which the handler's request names likewise, and the reply names the file as `path`.
        The reply raises what the handler raised, what `Pool` says of workers that can't be had, and `EndedError` where
        the job ended as many workers as it may.
        """
        job = _Job(request=request, folder=folder)
        with self._changed:
            if self._is_closed:
                raise CalibudgetError("the workers have ended")
            self._waiting.append(job)
            self._start_workers()
            self._changed.notify()
        return job.future

    def results(
        self, requests: Mapping[Key, Callable[[], Request]]
    ) -> Generator[tuple[Key, Future[Reply]], None, None]:
        """Have many jobs done: each key with its reply as soon as that has come; what isn't done at the end is left."""
        keys = {self.submit(request): key for key, request in requests.items()}
        try:
            for future in as_completed(list(keys)):
                yield keys.pop(future), future
        finally:
            self.abandon(keys)

    def abandon(self, futures: Collection[Future[Reply]]) -> None:
        """Cancel those jobs that wait, and end the workers that are at the others."""
        left = set(futures)
        with self._changed:
            for job in self._waiting:
                if job.future in left:
                    job.future.cancel()
            self._waiting = deque(job for job in self._waiting if job.future not in left)
            for place, job in self._at_work.items():
                if job.future in left:
                    job.is_abandoned = True
                    self._workers[place].end()

    def _start_workers(self) -> None:
        """Start as many workers as jobs wait beyond those that are free or starting, as far as there are places."""
        while self._free_places and len(self._waiting) > len(self._workers) - len(self._at_work):
            place = min(self._free_places)
            self._workers[place] = self._start(place)
            self._free_places.remove(place)
            self._threads[place] = threading.Thread(target=self._run_worker, args=(place,), daemon=True)
            self._threads[place].start()

    def _run_worker(self, place: int) -> None:
        """One worker's thread, from its start to its end."""
        worker = self._workers[place]
        try:
            first_reply = self._begin(worker)
            while first_reply is not None and self._do_job(place, worker, first_reply):
                pass
        except Exception as error:
            self._fail(error)
        worker.end()
        worker.close()
        with self._changed:
            del self._workers[place]
            self._free_places.add(place)
            try:
                self._start_workers()
            except Exception as error:
                self._fail(error)

    def _begin(self, worker: _Process | _Actor) -> Reply | None:
        """A worker's first reply once there is room for it; None if it ended, as it may a few times."""
        try:
            while lacking := worker.lacks(self._patience):
                if not self._at_work:
                    raise self._refusal(f"the Ray cluster had no room for a worker: {lacking}")
            first_reply = {} if self._first is None else worker.ask(self._first, None)
        except EndedError as ended:
            with self._changed:
                self._failed_starts += 1
                if self._failed_starts < ATTEMPTS:
                    return None
            raise self._refusal(f"{ATTEMPTS} workers ended while starting, the last with {ended}") from ended
        with self._changed:
            self._failed_starts = 0
            self._on_first_reply(first_reply)
        return first_reply

    def _do_job(self, place: int, worker: _Process | _Actor, first_reply: Reply) -> bool:
        """Do one job, which is waited for; False if the worker ended over it, or there will be none."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return False
            job = self._at_work[place] = self._waiting.popleft()
        outcome: Reply | Exception
        try:
            outcome = first_reply if job.request is None else worker.ask(job.request(), job.folder)
        except Exception as error:  # whoever waits for the reply is told
            outcome = error
        has_ended = isinstance(outcome, EndedError)
        with self._changed:
            del self._at_work[place]
            job.endings += has_ended
            if has_ended and job.endings < self._attempts and not job.is_abandoned:
                self._waiting.appendleft(job)
                self._changed.notify()
                return False
        if has_ended:
            job.future.set_exception(EndedError(f"{counted(job.endings, 'worker')} (the last with {outcome})"))
        elif isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
        return not has_ended

    def _fail(self, error: Exception) -> None:
        """Let all jobs that wait fail: no worker can be had for them."""
        with self._changed:
            failed, self._waiting = self._waiting, deque()
        for job in failed:
            job.future.set_exception(error)


def _parsed(text: str | bytes) -> Reply:
    """A reply, unless it is an error that calibudget raised in the worker, which is raised here."""
    reply: Reply = json.loads(text)
    if "error" in reply:
        raise getattr(import_module(CalibudgetError.__module__), reply["kind"])(reply["error"])
    return reply


def _environment(device: Device | None, gpus: int, place: int, size: int) -> dict[str, str]:
    """A process's own GPUs, and its share of the cores."""
    own = dict(os.environ)
    if device is None:
        return own
    visible = [one for one in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    places = range(place * gpus, (place + 1) * gpus) if device != "cpu" else ()
    mine = dict.fromkeys(visible[one % len(visible)] if visible else str(one) for one in places)
    return (
        {"OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // size, 1))} | own | {"CUDA_VISIBLE_DEVICES": ",".join(mine)}
    )


class _Process:
    """A worker that is a process of this machine; a JSON object a line goes either way."""

    def __init__(self, handler: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "calibudget.worker_main", handler]
        self._process = subprocess.Popen(  # noqa: S603 - our own module under our own interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._requests: Any = self._process.stdin
        self._replies: Any = self._process.stdout

    def lacks(self, _: float) -> str:
        """Wait so many seconds for room; what is lacking, if it isn't there."""
        return ""

    def ask(self, request: Request, folder: Path | None) -> Reply:
        """The reply to a request; `EndedError` where it ended."""
        placed = request if folder is None else {**request, "folder": str(folder)}
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(placed).encode("ascii") + b"\n")
            self._requests.flush()
        line = self._replies.readline()
        if not line.endswith(b"\n"):
            raise EndedError(f"exit code {self._process.wait()}")
        return _parsed(line)

    def end(self) -> None:
        """End it, from any thread; whoever waits for its reply waits no longer."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Let go of its pipes, once nobody asks it any more."""
        self._replies.close()
        with suppress(BrokenPipeError):
            self._requests.close()


@contextmanager
def _connection(address: str | None, refusal: type[InputError]) -> Iterator[Any]:
    """The module `ray`, connected; a connection that this process has already outlives the block."""
    with requires("engine: ray", "ray"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    # Without an address Ray would join whatever cluster it finds here, and die with it.
    options: Any = {"address": "local", "include_dashboard": False} if address is None else {"address": address}
    stop = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address!r}"
        raise refusal(f"no Ray cluster {where}: {error}") from error
    if stop is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)  # Ray puts its own there, which leaves with an exit code of its own
    try:
        yield ray
    finally:
        ray.shutdown()


class _Actor:
    """A worker that is an actor; its methods are those of `_Process`."""

    def __init__(self, ray: Any, needs: Mapping[str, int], handler: str) -> None:
        self._ray, self._needs = ray, needs
        kind = ray.remote(Served).options(**needs, max_restarts=0, max_task_retries=0)
        self._actor = kind.remote(handler, str(Path.cwd()))
        self._ready: Future[None] = self._actor.__ray_ready__.remote().future()
        self._ended: Future[None] = Future()

    def lacks(self, patience: float) -> str:
        if wait([self._ready, self._ended], timeout=patience, return_when=FIRST_COMPLETED).done:
            self._result(self._ready)
            return ""
        free = self._ray.available_resources()
        return f"it needs {self._needs}, and after {patience:.0f} s {free} is free"

    def ask(self, request: Request, folder: Path | None) -> Reply:
        text = json.dumps(request)
        if folder is None:
            return _parsed(self._result(self._actor.reply.remote(text).future()))
        pieces = self._actor.pieces.options(num_returns="streaming").remote(text)
        try:
            reply = _parsed(self._ray.get(next(pieces)))
            if "path" not in reply:
                return reply
            path = folder / f"{secrets.token_hex(16)}{Path(reply['path']).suffix}"
            with path.open("xb") as handle:
                for piece in pieces:
                    handle.write(self._ray.get(piece))
        except self._ray.exceptions.RayError as error:
            raise EndedError(_last_line(error)) from error
        return {**reply, "path": str(path)}

    def end(self) -> None:
        with suppress(InvalidStateError):
            self._ended.set_result(None)
        self._ray.kill(self._actor, no_restart=True)

    def close(self) -> None:
        pass

    def _result(self, future: Future[Any]) -> Any:
        wait([future, self._ended], return_when=FIRST_COMPLETED)
        if not future.done():
            raise EndedError("no fault of its own")
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            raise EndedError(_last_line(error)) from error


def _last_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"

"""The seam to Ray: a connection to a cluster or to one that is started on this machine, and actors on it."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from calibudget.errors import DependencyError, InputError

#: Seconds that all workers may wait for room on the cluster while none is at work; an autoscaler needs minutes.
PATIENCE: Final = 600.0


def ray_module() -> Any:
    """The module `ray`.

    Raises:
        DependencyError: it isn't installed.
    """
    try:
        import ray
    except ImportError as error:
        raise DependencyError("engine: ray needs ray; install: pip install 'calibudget[ray]'") from error
    return ray


def connect(ray: Any, address: str | None, refusal: type[InputError]) -> bool:
    """Connect to a cluster, or start one; False where this process has a connection already, which is used as it is.

    Args:
        ray: the module.
        address: the cluster's ("auto" finds the one of this machine); None starts Ray on this machine.
        refusal: the error to raise.

    Raises:
        InputError: there is no cluster at the address.
    """
    if ray.is_initialized():
        return False
    # Without an address Ray would join whatever cluster it finds here, and die with it.
    options = {"address": "local", "include_dashboard": False} if address is None else {"address": address}
    stop = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address!r}"
        raise refusal(f"no Ray cluster {where}: {error}") from error
    if stop is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)  # Ray puts its own there, which leaves with an exit code of its own
    return True


class Desk(Protocol):
    """What answers in an actor; made there, without arguments."""

    def reply(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """The reply to one request."""
        ...


class _Worker:
    """What runs in an actor.

    Args:
        desk: makes what answers.
        folder: that the cluster's user stands in, from which relative paths start.
    """

    def __init__(self, desk: Callable[[], Desk], folder: str) -> None:
        with suppress(OSError):  # another machine may lack the folder; a file that isn't found is named
            os.chdir(folder)
        self._desk = desk()

    def reply(self, request: str) -> str:
        """See `Desk`; JSON both ways."""
        return json.dumps(self._desk.reply(json.loads(request)))


class Actors:
    """Actors by their place, on a cluster's GPUs, or on its CPUs where it has none; requests and replies are JSON.

    Args:
        desk: what answers in each; every node needs calibudget, which this is of.
        first: each actor's first request, given the device that actors get ("cuda" or "cpu"). It is sent once the
            cluster has found room, while the others go on, and has a reply like any other.
        device: "cuda" or "cpu"; "auto" is a GPU each where the cluster has any. Each actor takes one CPU.
        address: as `connect` has it.
        refusal: the error to raise.
        patience: seconds to wait for room on the cluster while no actor is at work.

    Raises:
        DependencyError: ray isn't installed.
        InputError: there is no cluster at the address.
    """

    def __init__(
        self,
        desk: Callable[[], Desk],
        first: Callable[[Literal["cuda", "cpu"]], Mapping[str, object]],
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        address: str | None = None,
        refusal: type[InputError],
        patience: float = PATIENCE,
    ) -> None:
        self._ray = ray_module()
        self._connected_here = connect(self._ray, address, refusal)
        has_gpus = bool(self._ray.cluster_resources().get("GPU", 0))
        gpus = int(device == "cuda" or (device == "auto" and has_gpus))
        self._needs = {"num_cpus": 1, "num_gpus": gpus}
        self._kind = self._ray.remote(_Worker).options(**self._needs, max_restarts=0, max_task_retries=0)
        self._desk, self._first = desk, first("cuda" if gpus else "cpu")
        self._refusal, self._patience = refusal, patience
        self._actors: dict[int, Any] = {}
        self._unplaced: dict[Future[Any], int] = {}
        self._awaited: dict[Future[Any], int] = {}
        self._faults: dict[int, str] = {}

    def start(self, place: int) -> None:
        """Start an actor and send it the first request when the cluster has found room."""
        self._actors[place] = self._kind.remote(self._desk, str(Path.cwd()))
        self._unplaced[self._actors[place].__ray_ready__.remote().future()] = place

    def send(self, place: int, request: Mapping[str, object]) -> None:
        """Send a request to an actor that owes no reply."""
        self._awaited[self._actors[place].reply.remote(json.dumps(request)).future()] = place

    def replies(self) -> list[tuple[int, Mapping[str, Any] | None]]:
        """Wait for the next replies, at least one; None for an actor that died over its request.

        Raises:
            InputError: no actor is at work, and the cluster has found room for none.
        """
        found: list[tuple[int, Mapping[str, Any] | None]] = []
        while not found:
            patience = None if self._awaited else self._patience
            # not ray.wait, which keeps a signal to itself unless its handler raises KeyboardInterrupt
            ready, _ = wait([*self._awaited, *self._unplaced], timeout=patience, return_when=FIRST_COMPLETED)
            if not ready:
                raise self._refusal(
                    f"the Ray cluster had no room for a worker ({self._needs}) in {self._patience:.0f} s; "
                    f"it has {self._ray.available_resources()} free"
                )
            for future in ready:
                is_placed = future in self._unplaced
                place = self._unplaced.pop(future) if is_placed else self._awaited.pop(future)
                reply = self._result(future, place)
                if is_placed and place not in self._faults:
                    self.send(place, self._first)
                else:
                    found.append((place, reply))
        return found

    def end(self, place: int) -> str:
        """End an actor, dead or alive, and say how it ended; one that is gone already is left alone."""
        for futures in (self._unplaced, self._awaited):
            for future in [one for one, other in futures.items() if other == place]:
                del futures[future]
        if place in self._actors:
            self._ray.kill(self._actors.pop(place), no_restart=True)
        return self._faults.pop(place, "no fault of its own")

    def close(self) -> None:
        """End all actors, and Ray itself where it was started here."""
        for place in list(self._actors):
            self.end(place)
        if self._connected_here:
            self._ray.shutdown()

    def _result(self, future: Future[Any], place: int) -> Mapping[str, Any] | None:
        try:
            text = future.result()
        except self._ray.exceptions.RayError as error:
            self._faults[place] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            return None
        return json.loads(text) if isinstance(text, str) else None

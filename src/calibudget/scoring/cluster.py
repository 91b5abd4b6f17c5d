"""Workers that are actors of a Ray cluster: on its GPUs, or on its CPUs where it has none.

Requests and replies are the JSON that worker processes get. An actor whose node dies costs its batch only; its
successor waits until the cluster has room for it, while the others go on. Every node needs calibudget with its `lm`
extra, and the model under the same name or path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from calibudget.cluster import connect, ray_module
from calibudget.errors import ScoringError
from calibudget.scoring.desk import Desk, settings_request
from calibudget.scoring.pool import Pool
from calibudget.scoring.settings import ScorerSettings

#: Seconds that all workers may wait for room on the cluster while none is at work; an autoscaler needs minutes.
_PATIENCE: Final = 600.0


class RayPool(Pool):
    """A scorer made of several actors; use it as a context manager.

    Args:
        settings: what each worker makes its scorer of. Device "auto" is a GPU each where the cluster has any.
        workers: how many; each takes one CPU, and one GPU unless they score on CPU.
        address: an existing cluster's ("auto" finds the one of this machine); None starts Ray on this machine and
            ends it with the pool. A connection that this process has already is used as it is.

    Raises:
        DependencyError: ray isn't installed.
        ScoringError: fewer than one worker, or no cluster at the address.
    """

    def __init__(self, settings: ScorerSettings, *, workers: int, address: str | None = None) -> None:
        super().__init__(Actors(settings, address=address), workers)


class Worker:
    """What runs in an actor."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # another machine may lack the folder; a model that isn't found is named
            os.chdir(folder)
        self._desk = Desk()

    def reply(self, request: str) -> str:
        """See `Desk`; JSON both ways."""
        return json.dumps(self._desk.reply(json.loads(request)))


class Actors:
    """See `Crew`.

    Args:
        settings: what each worker makes its scorer of.
        address: as `RayPool` has it.
        patience: seconds to wait for room on the cluster while no worker is at work.
    """

    def __init__(self, settings: ScorerSettings, *, address: str | None = None, patience: float = _PATIENCE) -> None:
        self._ray = ray_module()
        self._connected_here = connect(self._ray, address, ScoringError)
        gpus = 0 if settings.device == "cpu" else int(settings.device == "cuda" or self._has_gpus())
        self._settings = replace(settings, device="cuda" if gpus else "cpu")
        self._needs = {"num_cpus": 1, "num_gpus": gpus}
        self._kind = self._ray.remote(Worker).options(**self._needs, max_restarts=0, max_task_retries=0)
        self._patience = patience
        self._actors: dict[int, Any] = {}
        self._unplaced: dict[Any, int] = {}
        self._awaited: dict[Any, int] = {}
        self._faults: dict[int, str] = {}

    def start(self, place: int) -> None:
        """See `Crew`; the settings follow when the cluster has found room."""
        self._actors[place] = self._kind.remote(str(Path.cwd()))
        self._unplaced[self._actors[place].__ray_ready__.remote()] = place

    def send(self, place: int, request: Mapping[str, object]) -> None:
        """See `Crew`."""
        self._awaited[self._actors[place].reply.remote(json.dumps(request))] = place

    def replies(self) -> list[tuple[int, Mapping[str, Any] | None]]:
        """See `Crew`.

        Raises:
            ScoringError: no worker is at work, and the cluster has found room for none.
        """
        found: list[tuple[int, Mapping[str, Any] | None]] = []
        while not found:
            patience = None if self._awaited else self._patience
            ready, _ = self._ray.wait([*self._awaited, *self._unplaced], timeout=patience)
            if not ready:
                raise ScoringError(
                    f"the Ray cluster had no room for a worker ({self._needs}) in {self._patience:.0f} s; "
                    f"it has {self._ray.available_resources()} free"
                )
            for reference in ready:
                is_placed = reference in self._unplaced
                place = self._unplaced.pop(reference) if is_placed else self._awaited.pop(reference)
                reply = self._get(reference, place)
                if is_placed and place not in self._faults:
                    self.send(place, settings_request(self._settings))
                else:
                    found.append((place, reply))
        return found

    def end(self, place: int) -> str:
        """See `Crew`."""
        for references in (self._unplaced, self._awaited):
            for reference in [one for one, other in references.items() if other == place]:
                del references[reference]
        if place in self._actors:
            self._ray.kill(self._actors.pop(place), no_restart=True)
        return self._faults.pop(place, "no fault of its own")

    def close(self) -> None:
        """See `Crew`; Ray itself is ended where it was started here."""
        for place in list(self._actors):
            self.end(place)
        if self._connected_here:
            self._ray.shutdown()

    def _get(self, reference: Any, place: int) -> Mapping[str, Any] | None:
        try:
            text = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._faults[place] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            return None
        return json.loads(text) if isinstance(text, str) else None

    def _has_gpus(self) -> bool:
        return bool(self._ray.cluster_resources().get("GPU", 0))

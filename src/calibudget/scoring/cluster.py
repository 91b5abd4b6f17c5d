"""Workers that are actors of a Ray cluster: on its GPUs, or on its CPUs where it has none.

Requests and replies are the JSON that worker processes get. An actor whose node dies costs its batch only; its
successor waits until the cluster has room for it, while the others go on. Every node needs calibudget with its `lm`
extra, and the model under the same name or path.
"""

from __future__ import annotations

from dataclasses import replace

from calibudget.cluster import PATIENCE, Actors
from calibudget.errors import ScoringError
from calibudget.scoring.desk import Desk, settings_request
from calibudget.scoring.pool import Pool
from calibudget.scoring.settings import ScorerSettings


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
        super().__init__(scoring_actors(settings, address=address), workers)


def scoring_actors(settings: ScorerSettings, *, address: str | None = None, patience: float = PATIENCE) -> Actors:
    """The crew of a `RayPool`; see `Actors`."""
    return Actors(
        Desk,
        lambda device: settings_request(replace(settings, device=device)),
        device=settings.device,
        address=address,
        refusal=ScoringError,
        patience=patience,
    )

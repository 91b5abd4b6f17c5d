"""Where scoring runs: in this process, in several of this machine, or on a Ray cluster; the bytes are equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from calibudget.errors import ScoringError
from calibudget.scoring.scorer import Scorer
from calibudget.scoring.settings import ScorerSettings, make_scorer

Engine = Literal["local", "ray"]


@contextmanager
def open_scorer(
    settings: ScorerSettings, *, engine: Engine = "local", workers: int = 1, address: str | None = None
) -> Iterator[Scorer]:
    """A scorer for as long as the block runs; its workers end with it.

    Args:
        settings: what is scored with; the measurements depend on nothing else.
        engine: "local" for this machine, "ray" for actors on a cluster.
        workers: how many batches are scored at once; 1 with "local" is this process.
        address: a Ray cluster's; see `RayPool`.

    Raises:
        ScoringError, DependencyError: the model or the cluster can't be used, or ray is missing.
    """
    if engine == "ray":
        from calibudget.scoring.cluster import RayPool

        with RayPool(settings, workers=workers, address=address) as actors:
            yield actors
    elif address is not None:
        raise ScoringError("an address is a Ray cluster's: say engine: ray with it")
    elif workers == 1 or settings.kind == "openai":  # a server has workers of its own
        yield make_scorer(settings)
    else:
        from calibudget.scoring.processes import LocalPool

        with LocalPool(settings, workers=workers) as processes:
            yield processes

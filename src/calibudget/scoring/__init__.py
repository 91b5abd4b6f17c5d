"""Scoring calibration records: a scorer protocol, a fake and a local scorer, resumable measuring, and the scores.

Names are loaded on first use, so importing this package, or using the fake scorer, imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.scoring.fake import FakeScorer
    from calibudget.scoring.local import LocalScorer
    from calibudget.scoring.measure import Progress, Shard, measure_all
    from calibudget.scoring.pool import ScorerPool, open_scorer
    from calibudget.scoring.scorer import (
        CalibrationItem,
        Measurement,
        ParallelScorer,
        Scorer,
        item_to_json,
        judged,
        measurement_to_json,
        to_scores,
    )
    from calibudget.scoring.server import ServerScorer
    from calibudget.scoring.settings import ScorerSettings, make_scorer

_HOMES = {
    "CalibrationItem": "scorer",
    "Measurement": "scorer",
    "ParallelScorer": "scorer",
    "Scorer": "scorer",
    "ScorerSettings": "settings",
    "make_scorer": "settings",
    "FakeScorer": "fake",
    "ScorerPool": "pool",
    "open_scorer": "pool",
    "LocalScorer": "local",
    "ServerScorer": "server",
    "Progress": "measure",
    "Shard": "measure",
    "item_to_json": "scorer",
    "measure_all": "measure",
    "measurement_to_json": "scorer",
    "judged": "scorer",
    "to_scores": "scorer",
}

__all__ = [
    "CalibrationItem",
    "FakeScorer",
    "LocalScorer",
    "Measurement",
    "ParallelScorer",
    "Progress",
    "Scorer",
    "ScorerPool",
    "ScorerSettings",
    "ServerScorer",
    "Shard",
    "item_to_json",
    "judged",
    "make_scorer",
    "measure_all",
    "measurement_to_json",
    "open_scorer",
    "to_scores",
]

__getattr__ = on_first_use(__name__, _HOMES)

"""What influence depends on beside the recipe, with every default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from calibudget.errors import InputError
from calibudget.selection.count_sketch import CountSketch
from calibudget.training.config import TrainingConfig

#: How the warm-up differs from training by default: smaller factors, so that a gradient has an eighth of the entries,
#: and LESS's four passes over its twentieth of the pool.
WARM_UP: Final[dict[str, Any]] = {"rank": 16, "scaling": 16.0, "epochs": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceConfig:
    """Everything that the scores depend on, beside model, data and calibration splits.

    Attributes:
        warm_up: how the factors are warmed up.
        warm_up_share: part of each source's candidates that the warm-up trains on, above 0 to 1; rounded up.
        dimension: buckets of a gradient's sketch.
        shards: number of shards that the pool is scored in.
    """

    warm_up: TrainingConfig
    warm_up_share: float = 0.05
    dimension: int = 8192
    sketch_seed: int = 42
    shards: int = 4

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0.0 < self.warm_up_share <= 1.0:
            raise InputError(f"the warm-up's share of the pool is above 0 and at most 1, not {self.warm_up_share}")
        if self.shards < 1:
            raise InputError(f"a pool is scored in at least 1 shard, not {self.shards}")
        CountSketch(dimension=self.dimension, seed=self.sketch_seed)  # refuses what no sketch can have
        if self.warm_up.dropout:
            raise InputError("the warm-up's dropout must be 0: gradients are taken without it")

"""The recipe's `warm_up`: small trainings that show how fast each source is learnt."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from calibudget.keys import MAX_SAFE_INTEGER
from calibudget.records import CurveForm

#: What a training option may be.
_Option = str | int | float | bool | None | tuple[str, ...]


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class WarmUpPart(BaseModel):
    """Warm-ups: on how much of each source, what is read off them, and how they are trained.

    Without `exposures` a source's warm-ups train on half its floor and on its floor. Given ones are units of every
    source, and act as floors: what warm-ups train on is part of the selection. `mixtures` sees transfer between
    sources: each is at its other exposures alone, the rest at the middle one.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    exposures: (
        Annotated[
            tuple[Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)], ...],
            BeforeValidator(_to_tuple),
            Field(min_length=2, max_length=8),
        ]
        | None
    ) = None
    read: Literal["runs", "checkpoints", "mixtures"] = "runs"
    form: CurveForm = "log-linear"
    shrink: bool = True
    run_sd: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    companion: bool = False
    training: dict[str, Annotated[_Option, BeforeValidator(_to_tuple)]] = {}

    @model_validator(mode="after")
    def _exposures_ascend(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.exposures or ())):
            raise ValueError(f"`exposures` must ascend, but are {list(self.exposures or ())}")
        return self

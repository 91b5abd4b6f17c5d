"""The parts of the recipe's `hygiene` that have settings of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from calibudget.sources import ContaminationRule, NearDuplicatesRule

_CONTAMINATION = ContaminationRule()
_NEAR = NearDuplicatesRule()
Action = Literal["drop", "keep", "refuse"]


def _action_shorthand(value: object) -> object:
    return {"action": value} if isinstance(value, str) else value


class _Part(BaseModel):
    """A mapping of the recipe: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ContaminationPart(_Part):
    """Runs of words that a source's record shares with an evaluation set; see `sources.ContaminationRule`."""

    action: Action = _CONTAMINATION.action
    ngram: Annotated[int, Field(ge=1, le=100)] = _CONTAMINATION.ngram

    def rule(self) -> ContaminationRule:
        """The frozen form that the stages take."""
        return ContaminationRule(**self.model_dump())


class NearDuplicatesPart(_Part):
    """Records that are nearly alike; see `sources.NearDuplicatesRule`."""

    action: Action = _NEAR.action
    threshold: Annotated[float, Field(gt=0.0, le=1.0)] = _NEAR.threshold
    permutations: Annotated[int, Field(ge=16, le=4096)] = _NEAR.permutations
    ngram: Annotated[int, Field(ge=1, le=100)] = _NEAR.ngram
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = _NEAR.seed

    def rule(self) -> NearDuplicatesRule:
        """The frozen form that the stages take."""
        return NearDuplicatesRule(**self.model_dump())


Contamination = Annotated[ContaminationPart, BeforeValidator(_action_shorthand)]
NearDuplicates = Annotated[NearDuplicatesPart, BeforeValidator(_action_shorthand)]

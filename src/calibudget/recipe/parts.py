"""The recipe's `hygiene`, its `selector`, and paths that name a place of this machine (no URLs, `~` written out)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from calibudget.selection.selectors import require_shares
from calibudget.store.files import expanded


def _local(value: str, kind: str) -> str:
    if "://" in value:
        raise ValueError(f"must be a {kind} of this machine; URLs go into a source's `path`")
    return expanded(value)


LocalFolder = Annotated[str, AfterValidator(lambda value: _local(value, "folder"))]
LocalFile = Annotated[str, AfterValidator(lambda value: _local(value, "file"))]
#: Name of the paper's rule, the default.
UNIFORM = "uniform"
#: What a mix may give a part of the quota to.
SelectorName = Literal["uniform", "scores", "quality", "influence"]


def _file_shorthand(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


def _ends(value: object) -> object:
    """[lowest, highest], null for an open end; integers are numbers too."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(float(end) if isinstance(end, int) and not isinstance(end, bool) else end for end in value)


def _uniform(value: object) -> object:
    if value == UNIFORM:
        return SelectorPart()
    if isinstance(value, str):
        raise ValueError(f"{value!r} needs its own fields; by itself only `uniform` can stand")
    if value == {}:
        raise ValueError("names no selector; say `uniform`, or name scores, quality or influence")
    return value


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Ends = Annotated[tuple[float | None, float | None], BeforeValidator(_ends)]


class _SelectorPart(BaseModel):
    """A mapping of the recipe: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ScoresPart(_SelectorPart):
    """The best first by a number of the user's: a file of scores, or a field of the data."""

    file: LocalFile | None = None
    column: str | None = None
    order: Literal["descending", "ascending"] = "descending"
    others: Literal["refuse", "ignore"] = "refuse"

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Self:
        if (self.file is None) == (self.column is None):
            raise ValueError("name either a `file` of scores or a `column` of the data, and not both")
        if self.column is not None and self.others != "refuse":
            raise ValueError("`others` belongs to a `file`: a column has no records but the pool's")
        return self


class QualityPart(_SelectorPart):
    """Only records inside a band of response lengths and a band of perplexities, and those uniformly."""

    length: Ends | None = None
    unit: Literal["words", "characters", "tokens"] = "words"
    perplexity: Ends | None = None
    perplexities: LocalFile | None = None

    @model_validator(mode="after")
    def _bands_are_sound(self) -> Self:
        if self.length is None and self.perplexity is None:
            raise ValueError("needs a band: `length: [lowest, highest]` or `perplexity: [lowest, highest]`")
        if (self.perplexity is None) != (self.perplexities is None):
            raise ValueError("`perplexity` (the band) and `perplexities` (the file) go together: give both or neither")
        for name in ("length", "perplexity"):
            ends = [end for end in getattr(self, name) or () if end is not None]
            if any(math.isnan(end) for end in ends) or ends != sorted(ends):
                raise ValueError(f"`{name}` runs from its lowest to its highest value")
        return self


class InfluencePart(_SelectorPart):
    """The best first by proxy scores, as `calibudget influence` and `calibudget proxy merge` write them."""

    file: LocalFile
    subgroups: Annotated[tuple[str, ...], BeforeValidator(_to_tuple)] | None = None
    shards: Annotated[int, Field(ge=1)] = 4


class SelectorPart(_SelectorPart):
    """One selector, or several inside each quota (`mix`); without any field it is the uniform draw."""

    scores: Annotated[ScoresPart, BeforeValidator(_file_shorthand, json_schema_input_type=ScoresPart | str)] | None = (
        None
    )
    quality: QualityPart | None = None
    influence: (
        Annotated[InfluencePart, BeforeValidator(_file_shorthand, json_schema_input_type=InfluencePart | str)] | None
    ) = None
    mix: dict[SelectorName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.mix is None:
            if len(self.given) > 1:
                raise ValueError(
                    f"{' and '.join(self.given)} stand together; say how much of a quota each takes (`mix`)"
                )
            return self
        if not any(self.mix.values()):
            raise ValueError("`mix` needs a weight above 0")
        missing = sorted(set(self.mix) - {UNIFORM} - set(self.given))
        if missing:
            raise ValueError(f"`mix` names {missing[0]!r}; give its own fields beside `mix`")
        idle = sorted(set(self.given) - set(self.mix))
        if idle:
            raise ValueError(f"{idle[0]!r} has no weight in `mix`; give it one, or leave it out")
        require_shares({str(name): weight for name, weight in self.mix.items()})
        return self

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: Callable[[Any], dict[str, Any]]) -> str | dict[str, Any]:
        return {name: part for name, part in dump(self).items() if part is not None} or UNIFORM

    @property
    def given(self) -> tuple[str, ...]:
        """The selectors that have fields of their own, in the order of their names."""
        return tuple(name for name in ("influence", "quality", "scores") if getattr(self, name) is not None)

    @property
    def is_uniform(self) -> bool:
        """Whether it is the paper's rule."""
        return not self.given and self.mix is None


Selector = Annotated[SelectorPart, BeforeValidator(_uniform, json_schema_input_type=SelectorPart | Literal["uniform"])]

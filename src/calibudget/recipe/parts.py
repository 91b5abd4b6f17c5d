"""The mappings that a recipe holds, and paths that name a place of this machine (no URLs, `~` written out)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    model_serializer,
    model_validator,
)

from calibudget.hardware import Device, Dtype
from calibudget.selection.selectors import require_shares
from calibudget.store.files import expanded
from calibudget.values import MAX_SAFE_INTEGER, Positive, one_or_more, shorthand


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


Ends = Annotated[tuple[float | None, float | None], BeforeValidator(_ends)]
_Texts = str | Annotated[tuple[str, ...], Field(min_length=1)]
Folders = Annotated[
    tuple[LocalFolder, ...], BeforeValidator(one_or_more, json_schema_input_type=_Texts), Field(min_length=1)
]
#: In a recipe's file a file may stand instead (`recipe.weights`); loading puts its numbers here.
Weights = Annotated[
    dict[str, float], BeforeValidator(lambda value: value, json_schema_input_type=dict[str, float] | str)
]


class Part(BaseModel):
    """A mapping of the recipe: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TokenBudget(Part):
    """A budget counted in tokens instead of examples."""

    tokens: Positive


class Calibration(Part):
    """How the calibration split is drawn and scored."""

    adapter: LocalFolder | None = None
    per_source: Annotated[int, Field(ge=2, le=MAX_SAFE_INTEGER)] = 100
    resamples: Annotated[int, Field(ge=2, le=1_000_000)] = 200
    device: Device = "auto"
    dtype: Dtype = "auto"
    gpus: Annotated[int, Field(ge=1, le=64)] = 1
    batch_tokens: Positive | None = None
    max_length: Positive | None = None
    too_long: Literal["cut", "skip"] = "cut"
    max_new_tokens: Positive | None = None


class Server(Part):
    """How a model's server is asked; its address is `base_url`."""

    model: str | None = None
    requests: Annotated[int, Field(ge=1, le=1024)] = 16
    timeout: Annotated[float, Field(gt=0.0, le=86_400.0)] = 300.0


class Evaluation(Part):
    """How many records of each source are held out to evaluate what is trained on the run."""

    per_source: Positive


class Rounds(Part):
    """Which rounds came before this one; their picks are spent.

    Relative paths start at the folder where the recipe lies.
    """

    previous: Folders
    calibration: Literal["reuse", "fresh"] = "reuse"


class Output(Part):
    """What the train set looks like."""

    format: Literal["jsonl", "parquet", "dataset"] = "jsonl"
    layout: Literal["rendered", "turns", "messages", "completion"] = "rendered"
    order: Literal["shuffled", "source"] = "shuffled"

    @property
    def train_name(self) -> str:
        """The train set's name in the run directory."""
        return f"train.{self.format}"


class ScoresPart(Part):
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


class QualityPart(Part):
    """Only records inside a band of response lengths, and those uniformly."""

    length: Ends
    unit: Literal["words", "characters", "tokens"] = "words"

    @model_validator(mode="before")
    @classmethod
    def _names_what_was_removed(cls, fields: object) -> object:
        """Recipes of earlier versions hold bands of perplexities, those that were resolved as null."""
        if not isinstance(fields, dict):
            return fields
        if fields.get("perplexity") is not None:
            raise ValueError("`perplexity` was removed: leave such records out of the data, or order by `scores`")
        return {name: value for name, value in fields.items() if name not in ("perplexity", "perplexities")}

    @model_validator(mode="after")
    def _band_is_sound(self) -> Self:
        ends = [end for end in self.length if end is not None]
        if any(math.isnan(end) for end in ends) or ends != sorted(ends):
            raise ValueError("`length` runs from its lowest to its highest value")
        return self


class InfluencePart(Part):
    """The best first by proxy scores, as `calibudget influence` and `calibudget proxy merge` write them."""

    file: LocalFile
    subgroups: Annotated[tuple[str, ...], Strict(False)] | None = None
    shards: Annotated[int, Field(ge=1)] = 4


class SelectorPart(Part):
    """One selector, or several inside each quota (`mix`); without any field it is the uniform draw."""

    scores: Annotated[ScoresPart, shorthand("file", ScoresPart | str)] | None = None
    quality: QualityPart | None = None
    influence: Annotated[InfluencePart, shorthand("file", InfluencePart | str)] | None = None
    mix: dict[SelectorName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.mix is None:
            if len(self.given) > 1:
                raise ValueError(
                    f"{' and '.join(self.given)} stand together; say how much of a quota each takes (`mix`)"
                )
            return self
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


Selector = Annotated[SelectorPart, BeforeValidator(_uniform, json_schema_input_type=SelectorPart | Literal["uniform"])]

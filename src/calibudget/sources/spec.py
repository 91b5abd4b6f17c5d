"""What a recipe says of one source and of its sources' hygiene, validated where it stands alone.

And what two of its fields do with a row: which values `where` lets pass, and how `prompt` puts columns together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from string import Formatter
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from calibudget.errors import RecipeError, refuse_as
from calibudget.messages import meant
from calibudget.sources.field_meanings import READ, TURNS, Format, known, meaning
from calibudget.sources.limits import LIMITS, Limits
from calibudget.sources.remote import check_path
from calibudget.sources.split_names import DEFAULT
from calibudget.store.files import expanded
from calibudget.tasks.answers import AnswerKind, AnswerSpec
from calibudget.tasks.presets import preset
from calibudget.values import CHECKED, Flag, Integer, Number, Text, one_or_more, shorthand

#: What happens to records of one source whose ids are equal.
Duplicates = Literal["drop", "keep", "refuse"]
#: What happens to a row that can't be used.
OnError = Literal["refuse", "skip"]
#: A value that a row's field may be asked to have.
Scalar = Text | Integer | Annotated[float, Strict()] | Flag
_HUB_NAME: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


#: Files, directories, globs or URLs; one may stand by itself.
Paths = Annotated[
    tuple[Annotated[Text, AfterValidator(expanded)], ...],
    BeforeValidator(one_or_more, json_schema_input_type=str | Annotated[tuple[str, ...], Field(min_length=1)]),
    Field(min_length=1),
]
_Answer = Annotated[AnswerSpec, shorthand("kind", AnswerSpec | AnswerKind)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source (or the companion set, or an evaluation set) as a recipe describes it.

    Attributes:
        path: files, directories or globs below the data directory, absolute, or as URLs (file, s3, hf); a single
            string is one of them.
        hub: a data set of the Hugging Face hub instead of files, as owner/name.
        subset: the hub data set's configuration.
        split: the split of a hub data set, of a saved data set that has several, or of files in a folder or glob; None
            for `train`, of an evaluation set for the only one that is there.
        revision: the hub data set's branch, tag or commit.
        streaming: whether the hub data set is read as the hub sends it, and nothing is kept on disk.
        format: how rows hold prompt and response; None to see it from the first row of each file.
        rows: the field of a JSON object that holds the rows, where a file is one object.
        columns: our field name to the data's, or to several whose texts are joined by line feeds; or a field of the
            data to None, which leaves it out on purpose. Applied before anything else reads the row.
        prompt: a text with names of the data's columns in braces, whose texts take their places; it is the prompt.
        where: field to value or values; other rows are left out (and counted).
        preset: name of a known data set (`calibudget.tasks.PRESETS`), which then renders the rows.
        answer: how answers are parsed and compared; None for the preset's own, or nothing to check.
        id_field: the field that holds a record's own id; None to derive ids from the text.
        duplicates: what happens to equal ids; None for what the recipe says of all sources.
        on_error: what happens to a row that can't be used; None as above.

    Raises:
        RecipeError: neither or both of path and hub, a URL that can't name a source, a hub name that is none, an
            unknown preset, a preset beside a format, or a `prompt` that can't be the row's.
    """

    __pydantic_config__ = CHECKED

    path: Paths | None = None
    hub: Text | None = None
    subset: Text | None = None
    split: Text | None = None
    revision: Text | None = None
    streaming: Flag = False
    format: Format | None = None
    rows: Text | None = None
    columns: Mapping[Text, Text | Annotated[tuple[Text, ...], Field(min_length=1)] | None] = field(default_factory=dict)
    prompt: Text | None = None
    where: Mapping[Text, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    preset: Text | None = None
    answer: _Answer | None = None
    id_field: Text | None = None
    duplicates: Duplicates | None = None
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        if bool(self.path) == (self.hub is not None):
            raise RecipeError("name either `path` (files) or `hub` (a data set id), and not both")
        for path in self.paths:
            check_path(path)
        if self.hub is not None and not _HUB_NAME.fullmatch(self.hub):
            raise RecipeError(f"`hub` must be a name like owner/name, not {self.hub!r}")
        if self.hub is None and (self.subset or self.revision or self.streaming):
            raise RecipeError("`subset`, `revision` and `streaming` belong to a `hub` source")
        if self.hub is None and self.split is not None and set(self.split) & set("[]+%:"):
            raise RecipeError(
                f"`split: {self.split}` takes parts of splits, which only a `hub` data set has; name one split, or the "
                "files under `path`"
            )
        read = {*self.where, self.id_field, self.answer and self.answer.field}
        for ours, theirs in self.columns.items():
            if theirs is not None and self.preset is None and ours not in read and known(ours) is None:
                raise RecipeError(
                    f"`columns: {{{ours}: ...}}` gives a field that nothing reads; ours stands first, as in "
                    f"`{{prompt: {ours}}}`; {meant(ours, READ)}"
                )
        if self.preset is not None and self.format is not None:
            raise RecipeError("a `preset` says how rows are read, so `format` has no place beside it")
        if self.preset is not None:
            preset(self.preset)
        if self.prompt is not None:
            self._check_prompt(self.prompt)

    def _check_prompt(self, template: str) -> None:
        template_columns(template)
        if self.preset is not None or self.format in TURNS:
            other = "preset" if self.preset is not None else f"format: {self.format}"
            raise RecipeError(
                f"`prompt` has no place beside `{other}`, which says what the prompt is; give one of them"
            )
        twice = next((ours for ours, theirs in self.columns.items() if theirs and meaning(ours) == "prompt"), None)
        if twice is not None:
            raise RecipeError(f"`prompt` and `columns: {{{twice}: ...}}` both say what the prompt is; give one of them")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths and globs, none for a hub data set."""
        return (self.path,) if isinstance(self.path, str) else tuple(self.path or ())

    @property
    def answers(self) -> AnswerSpec:
        """How this source's answers are parsed and compared, the preset's default resolved."""
        if self.answer is not None:
            return self.answer
        return preset(self.preset).answer if self.preset is not None else AnswerSpec(kind="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec(Source):
    """A source as it is read: nothing of it is left to the recipe.

    Attributes:
        label: its name.
        kind: what messages call it.
        split: which one is read.
        prompts_suffice: whether rows may lack a response, as an evaluation set's may.
        one_exchange: whether a row must be one prompt and its response, as `output.layout: completion` holds it.
        also_used: fields that something else uses, such as a selector.
        only_split: whether it is measured on and names no split, so that only data of a single one can be read.
        limits: what its files may ask of the machine.

    Raises:
        RecipeError: see `Source`; the source is named.
    """

    label: str
    kind: Literal["source", "companion set", "evaluation set", "task"] = "source"
    path: str | tuple[str, ...] | None = None  # type: ignore[assignment]  # a program may give one as it is
    duplicates: Duplicates = "drop"
    on_error: OnError = "refuse"
    split: str = DEFAULT
    prompts_suffice: bool = False
    one_exchange: bool = False
    also_used: tuple[str, ...] = ()
    only_split: bool = False
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        with refuse_as(RecipeError, self.name, RecipeError):
            Source.__post_init__(self)
            if self.only_split and self.hub is not None:
                raise RecipeError("name its `split` (test, say): an evaluation set isn't taken to be a `train` split")

    @property
    def name(self) -> str:
        """The source as messages name it."""
        return "the companion set" if self.kind == "companion set" else f"{self.kind} {self.label!r}"

    @property
    def ignored(self) -> frozenset[str]:
        """The fields of the data that the recipe leaves out on purpose."""
        return frozenset(name for name, theirs in self.columns.items() if theirs is None)


#: Of a run of them.
Words = Annotated[Integer, Field(ge=1, le=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContaminationRule:
    """Runs of words that sources share with evaluation sets."""

    __pydantic_config__ = CHECKED

    action: Duplicates = "keep"
    ngram: Words = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicatesRule:
    """Records that are nearly alike, by MinHash and locality-sensitive hashing.

    Attributes:
        action: what happens to a record that is nearly alike one before it, or one of an evaluation set.
        threshold: Jaccard similarity, estimated, from which two records are nearly alike.
        permutations: hash values a record; the estimate's standard error is at most 0.5 / sqrt(permutations).
        ngram: words in each of the runs that records are compared by.
        seed: of the hash functions.
    """

    __pydantic_config__ = CHECKED

    action: Duplicates = "drop"
    threshold: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.8
    permutations: Annotated[Integer, Field(ge=16, le=4096)] = 128
    ngram: Words = 3
    seed: Annotated[Integer, Field(ge=0, le=2**32 - 1)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HygieneRules:
    """What is looked for beside the duplicates of each source; None where it isn't.

    Attributes:
        evaluation: evaluation sets to keep apart from the sources, by name.
        evaluation_prompts: what happens to records with a prompt of an evaluation set.
        cross_source: what happens to records that an earlier source holds too.
        contamination: shared runs of words.
        near_duplicates: nearly equal records.
    """

    __pydantic_config__ = CHECKED

    evaluation: Mapping[Text, Source] = field(default_factory=dict)
    evaluation_prompts: Duplicates = "drop"
    cross_source: Duplicates = "keep"
    contamination: Annotated[ContaminationRule, shorthand("action", ContaminationRule | Duplicates)] | None = field(
        default_factory=ContaminationRule
    )
    near_duplicates: Annotated[NearDuplicatesRule, shorthand("action", NearDuplicatesRule | Duplicates)] | None = None

    def action(self, check: str) -> Duplicates | None:
        """What happens to what a check found; None for one that isn't asked for."""
        is_asked = check in ("evaluation_prompts", "cross_source", "contamination", "near_duplicates")
        rule: Duplicates | ContaminationRule | NearDuplicatesRule | None = getattr(self, check) if is_asked else None
        return rule if rule is None or isinstance(rule, str) else rule.action

    def to_json(self, duplicates: Mapping[str, Duplicates]) -> dict[str, object]:
        """The `rules` of `hygiene.json`; what isn't looked for is null."""
        rules = {check: rule for check, rule in asdict(self).items() if check != "evaluation"}
        named = {check: {"action": rule} if isinstance(rule, str) else rule for check, rule in rules.items()}
        return {"duplicates": dict(sorted(duplicates.items())), **named}


def template_columns(template: str) -> tuple[str, ...]:
    """The columns that a template names, each once, in its order.

    Raises:
        RecipeError: a brace that stands alone, a name that is missing or says more than a column, or no column at all.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise RecipeError(f"`prompt`: {error}; a brace of the text itself is written twice, {{{{ or }}}}") from error
    for _, name, form, conversion in parts:
        if name is not None and (not name or form or conversion):
            raise RecipeError(
                "`prompt`: between braces stands the name of a column and nothing else, as in {question}; a brace of "
                "the text itself is written twice, {{ or }}"
            )
    names = tuple(dict.fromkeys(name for _, name, _, _ in parts if name))
    if not names:
        raise RecipeError("`prompt` names no column, as {question} does, so all prompts would be the same text")
    return names


def filled(template: str, texts: Mapping[str, str]) -> str:
    """A template with the text of each column in its place; braces in these texts are text."""
    return "".join(text + (texts[name] if name else "") for text, name, _, _ in Formatter().parse(template))


#: A number as a text may hold it; `007` is none, since it is a name more often.
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_TRUTHS: Final = {"true": True, "false": False}
#: What kind of value it is, and the value.
_Value = tuple[str, object]


class Wanted:
    """The values that a filter lets pass for a field.

    Two texts are equal if they are the same; a text equals a number or a truth value that it states ("1.0" and 1,
    "True" and true). Null, lists and objects equal nothing.
    """

    def __init__(self, given: object) -> None:
        values = filter_values(given)
        self._texts = frozenset(one for one in values if isinstance(one, str))
        self._stated = frozenset(filter(None, map(_value, self._texts)))
        self._values = frozenset(filter(None, (_value(one) for one in values if not isinstance(one, str))))

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self._texts or (bool(self._values) and _value(value) in self._values)
        stated = _value(value)
        return stated is not None and (stated in self._values or stated in self._stated)

    def meets(self, other: Wanted) -> bool:
        """Whether some value may pass both."""
        return not (self._stated | self._values).isdisjoint(other._stated | other._values)


def filter_values(given: object) -> Sequence[object]:
    """The values that a filter names for a field, one by itself among them."""
    return given if isinstance(given, tuple | list) else (given,)


def are_disjoint(one: Mapping[str, object], two: Mapping[str, object]) -> bool:
    """Whether no row passes both filters, since they ask a field for different values."""
    return any(not Wanted(one[name]).meets(Wanted(two[name])) for name in one if name in two)


def _value(given: object) -> _Value | None:
    if isinstance(given, bool):
        return "truth", given
    if isinstance(given, int | float):
        return None if given != given else ("number", given)  # NaN equals nothing
    if not isinstance(given, str):
        return None
    truth = _TRUTHS.get(given.casefold())
    if truth is not None:
        return "truth", truth
    if _NUMBER.fullmatch(given):
        return "number", float(given) if set(given) & set(".eE") else int(given)
    return "text", given

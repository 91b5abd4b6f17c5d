"""What a recipe says of one source, validated where it stands alone.

What a recipe asks of its sources' hygiene.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, get_args

from calibudget.errors import RecipeError
from calibudget.sources.fields import Format
from calibudget.sources.limits import LIMITS, Limits
from calibudget.sources.remote import check_path
from calibudget.tasks import AnswerSpec, preset

#: What happens to records of one source whose ids are equal.
Duplicates = Literal["drop", "keep", "refuse"]
#: What happens to a row that can't be used.
OnError = Literal["refuse", "skip"]
#: A value that a row's field may be asked to have.
Scalar = str | int | float | bool
_HUB_NAME: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "format": get_args(Format),
    "duplicates": get_args(Duplicates),
    "on_error": get_args(OnError),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """One source (or the companion set) as a recipe describes it.

    Attributes:
        label: its name.
        path: files, directories or globs below the data directory, absolute, or as URLs (file, s3, hf); a single
            string is one of them.
        hub: a data set of the Hugging Face hub instead of files, as owner/name.
        subset: the hub data set's configuration.
        split: the split of a hub data set, of a saved data set that has several, or of files in a folder or glob.
        revision: the hub data set's branch, tag or commit.
        streaming: whether the hub data set is read as the hub sends it, and nothing is kept on disk.
        format: how rows hold prompt and response; None to see it from the first row of each file.
        rows: the field of a JSON object that holds the rows, where a file is one object.
        columns: our field name to the data's, or to several whose texts are joined by line feeds; or a field of the
            data to None, which leaves it out on purpose. Applied before anything else reads the row.
        preset: name of a known data set (`calibudget.tasks.PRESETS`), which then renders the rows.
        answer: how answers are parsed and compared; None for the preset's own, or nothing to check.
        id_field: the field that holds a record's own id; None to derive ids from the text.
        duplicates: what happens to equal ids.
        on_error: what happens to a row that can't be used.
        where: field to value or values; other rows are left out (and counted).
        prompts_suffice: whether rows may lack a response, as an evaluation set's may.
        limits: what its files may ask of the machine.

    Raises:
        RecipeError: a field that names neither or both of path and hub, a URL that can't name a source, a hub name that
            is none, an unknown preset, format or word, or a preset beside a format.
    """

    label: str
    path: str | tuple[str, ...] = ()
    hub: str | None = None
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = False
    format: Format | None = None
    rows: str | None = None
    columns: Mapping[str, str | tuple[str, ...] | None] = field(default_factory=dict)
    preset: str | None = None
    answer: AnswerSpec | None = None
    id_field: str | None = None
    duplicates: Duplicates = "drop"
    on_error: OnError = "refuse"
    where: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    prompts_suffice: bool = False
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        if bool(self.path) == (self.hub is not None):
            raise RecipeError(f"source {self.label!r}: give either path or hub")
        for path in self.paths:
            try:
                check_path(path)
            except RecipeError as error:
                raise RecipeError(f"source {self.label!r}: {error}") from error
        if self.hub is not None and not _HUB_NAME.fullmatch(self.hub):
            raise RecipeError(f"source {self.label!r}: hub must be a name like owner/name, not {self.hub!r}")
        if self.hub is None and (self.subset or self.revision or self.streaming):
            raise RecipeError(f"source {self.label!r}: subset, revision and streaming belong to a hub data set")
        if self.preset is not None and self.format is not None:
            raise RecipeError(f"source {self.label!r}: a preset says how rows are read, so format has no place")
        if self.preset is not None:
            preset(self.preset)
        for name, words in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in words:
                raise RecipeError(f"source {self.label!r}: {name} must be one of {', '.join(words)}, not {value!r}")

    @property
    def ignored(self) -> frozenset[str]:
        """The fields of the data that the recipe leaves out on purpose."""
        return frozenset(name for name, theirs in self.columns.items() if theirs is None)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths and globs, none for a hub data set."""
        return (self.path,) if isinstance(self.path, str) else tuple(self.path)

    @property
    def answers(self) -> AnswerSpec:
        """How this source's answers are parsed and compared, the preset's default resolved."""
        if self.answer is not None:
            return self.answer
        return preset(self.preset).answer if self.preset is not None else AnswerSpec(kind="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContaminationRule:
    """Runs of words that sources share with evaluation sets.

    Attributes:
        action: what happens to a source's record that has one.
        ngram: how many words a run has.
    """

    action: Duplicates = "keep"
    ngram: int = 13


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

    action: Duplicates = "drop"
    threshold: float = 0.8
    permutations: int = 128
    ngram: int = 3
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HygieneRules:
    """What is looked for beside the duplicates of each source; None where it isn't.

    Attributes:
        evaluation_prompts: what happens to records with a prompt of an evaluation set.
        cross_source: what happens to records that an earlier source holds too.
        contamination: shared runs of words.
        near_duplicates: nearly equal records.
    """

    evaluation_prompts: Duplicates = "drop"
    cross_source: Duplicates = "keep"
    contamination: ContaminationRule | None = field(default_factory=ContaminationRule)
    near_duplicates: NearDuplicatesRule | None = None

    def action(self, check: str) -> Duplicates | None:
        """What happens to what a check found; None for one that isn't asked for."""
        known = {"evaluation_prompts": self.evaluation_prompts, "cross_source": self.cross_source}
        asked = {"contamination": self.contamination, "near_duplicates": self.near_duplicates}
        rule = asked.get(check)
        return known.get(check) if rule is None else rule.action

    def to_json(self, duplicates: Mapping[str, Duplicates]) -> dict[str, object]:
        """The `rules` of `hygiene.json`; what isn't looked for is null."""
        fields = asdict(self)
        return {
            "duplicates": dict(sorted(duplicates.items())),
            **{name: {"action": rule} if isinstance(rule, str) else rule for name, rule in fields.items()},
        }

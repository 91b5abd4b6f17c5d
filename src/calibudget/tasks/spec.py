"""What a source's answers are: the kind that the recipe names, validated once."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal, get_args

from calibudget.errors import RecipeError

#: How an answer is read from a response and compared with the gold answer.
AnswerKind = Literal["choice", "true_false", "number", "math", "exact", "regex", "none"]

#: Version of every parsing and comparing rule of this package; part of the evidence. It changes whenever any
#: text could parse to another answer or any pair could compare otherwise.
PARSER_VERSION: Final = "2"

#: Versions whose runs still verify: what they parsed stands in their scores. 1 took some runs of labels for the first.
EARLIER_PARSERS: Final = frozenset({"1"})

_KINDS: Final = get_args(AnswerKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSpec:
    """How the answers of a source are parsed and compared.

    Attributes:
        kind: `choice` (one of `labels`), `true_false` (true or false, also said as yes or no), `number` (the last
            stated number), `math` (a mathematical expression), `exact` (the whole response), `regex` (the first
            match of `pattern`, its first group if it has one), `none` (nothing to check).
        labels: for `choice`, the labels as the data has them; at least two, distinct under case folding.
        pattern: for `regex`, a Python regular expression.
        field: the record's field that holds the gold answer; None to parse it from the response.

    Raises:
        RecipeError: an unknown kind, labels or a pattern missing or given to a kind that has none, labels that
            only case or Unicode form parts, a pattern that doesn't compile.
    """

    kind: AnswerKind
    labels: tuple[str, ...] = ()
    pattern: str | None = None
    field: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise RecipeError(f"answer.kind: {self.kind!r} is unknown; choose one of {', '.join(_KINDS)}")
        object.__setattr__(self, "labels", tuple(self.labels))
        _check_labels(self)
        _check_pattern(self)


def _check_labels(spec: AnswerSpec) -> None:
    if spec.kind != "choice":
        if spec.labels:
            raise RecipeError(f"answer.labels: the kind {spec.kind!r} takes no labels")
        return
    if len(spec.labels) < 2:
        raise RecipeError("answer.labels: the kind 'choice' needs at least two labels")
    seen: dict[str, str] = {}
    for label in spec.labels:
        if not isinstance(label, str) or not label.strip() or label != label.strip():
            raise RecipeError(f"answer.labels: {label!r} must be text, not empty, without white space at its ends")
        folded = unicodedata.normalize("NFC", label).casefold()
        if folded in seen:
            raise RecipeError(f"answer.labels: {seen[folded]!r} and {label!r} are the same label but for case and form")
        seen[folded] = label


def _check_pattern(spec: AnswerSpec) -> None:
    if (spec.kind == "regex") != (spec.pattern is not None):
        word = "needs a pattern" if spec.kind == "regex" else "takes no pattern"
        raise RecipeError(f"answer.pattern: the kind {spec.kind!r} {word}")
    if spec.pattern is not None:
        try:
            re.compile(spec.pattern)
        except re.error as error:
            raise RecipeError(f"answer.pattern: {spec.pattern!r} is no regular expression: {error}") from error

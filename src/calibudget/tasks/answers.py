"""What a source's answers are: the kind that the recipe names, validated once.

The four questions that scoring and evaluation ask about answers, for every kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from calibudget.errors import DataError, RecipeError, refuse_as
from calibudget.tasks.answer_phrases import joined, parted
from calibudget.tasks.choice import choice_is_final, parse_choice
from calibudget.tasks.mathematics import judged_equal, math_equal_at_sight, parse_math
from calibudget.tasks.number import number_value, parse_number, sole_number, without_spacing
from calibudget.tasks.plain_text import composed, is_closed, plain, run_on, without_reasoning
from calibudget.tasks.time_limits import ask
from calibudget.values import CHECKED, Text, nfc

#: How an answer is read from a response and compared with the gold answer.
AnswerKind = Literal["choice", "true_false", "number", "math", "exact", "regex", "none"]
#: Version of every parsing and comparing rule of this package; part of the evidence. It changes whenever any
#: text could parse to another answer or any pair could compare otherwise.
PARSER_VERSION: Final = "4"
#: Versions whose runs still verify: what they parsed stands in their scores. 1 took some runs of labels for the first;
#: 2 read reasoning, knew English statements alone and took the last number of a gold field for the whole;
#: 3 took a decimal comma for the end of a number, one of two numbers for the answer, and a name ("B-52") for a number.
EARLIER_PARSERS: Final = frozenset({"1", "2", "3"})
_KINDS: Final = get_args(AnswerKind)
#: Seconds that a search for a pattern is waited for; five of computing end it before, where the system can tell.
_PATIENCE_S: Final = 60.0


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

    __pydantic_config__ = CHECKED

    kind: AnswerKind
    labels: tuple[Text, ...] = ()
    pattern: Text | None = None
    field: Text | None = None

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
        folded = nfc(label).casefold()
        if folded in seen:
            raise RecipeError(f"answer.labels: {seen[folded]!r} and {label!r} are the same label but for case and form")
        seen[folded] = label


def _check_pattern(spec: AnswerSpec) -> None:
    if (spec.kind == "regex") != (spec.pattern is not None):
        word = "needs a pattern" if spec.kind == "regex" else "takes no pattern"
        raise RecipeError(f"answer.pattern: the kind {spec.kind!r} {word}")
    if spec.pattern is not None:
        with refuse_as(RecipeError, f"answer.pattern: {spec.pattern!r} is no regular expression", re.error):
            re.compile(spec.pattern)


_TRUE_FALSE = ("true", "false")


def parse_answer(spec: AnswerSpec, text: str) -> str | None:
    """The answer that a response gives under the source's answer kind; None if it gives none.

    Reasoning between its marks (`<think>` and the like) is never read, nor is text from an invented next question or
    a chat mark on. A choice comes back as the label is
    spelled, a number in canonical form, a regex match and an exact response with white space collapsed.
    """
    text = _readable(spec, text)
    end = run_on(text)
    text = composed(text if end is None else text[:end])
    match spec.kind:
        case "choice" | "true_false":
            return parse_choice(spec.labels or _TRUE_FALSE, text, true_false=spec.kind == "true_false")
        case "number":
            return parse_number(text)
        case "math":
            return parse_math(text)
        case "exact":
            return _collapsed(joined(text)) or None
        case "regex":
            return _first_match(spec.pattern or "", joined(text))
        case "none":
            return None


def answer_is_final(spec: AnswerSpec, text_so_far: str) -> bool:
    """Whether decoding may stop: the parsed answer is the same whatever follows this text.

    True only when that is certain, so a False may only mean "not known yet". It is certain but for the end of
    reasoning that nothing opened, `</think>`: where a prompt opens it, its mark belongs in front of the text.
    """
    if spec.kind == "none":
        return True
    text = _readable(spec, text_so_far)
    if run_on(text) is not None:
        return True
    text = composed(text)
    match spec.kind:
        case "choice" | "true_false":
            return choice_is_final(spec.labels or _TRUE_FALSE, text, true_false=spec.kind == "true_false")
        case "number":
            return is_closed(without_spacing(text))
        case "math":
            return is_closed(text)
        case _:
            return False


def answers_equal(spec: AnswerSpec, gold: str, predicted: str | None) -> bool:
    """Whether a parsed answer is right. The gold answer comes first: comparing mathematics isn't symmetric.

    Raises:
        DependencyError: kind `math`, and a pair that needs math-verify, which isn't installed.
    """
    if predicted is None or spec.kind == "none":
        return False
    match spec.kind:
        case "choice" | "true_false":
            return _folded(gold) == _folded(predicted)
        case "number":
            gold_value, value = number_value(plain(gold)), number_value(plain(predicted))
            return value is not None and gold_value == value
        case "math":
            gold, predicted = plain(gold), plain(predicted)
            found = math_equal_at_sight(gold, predicted)
            return judged_equal(gold, predicted) if found is None else found
        case _:
            return _collapsed(gold) == _collapsed(predicted)


def equal_at_sight(spec: AnswerSpec, gold: str, predicted: str) -> bool | None:
    """As `answers_equal`, without math-verify: None where only that could say."""
    return (
        math_equal_at_sight(plain(gold), plain(predicted))
        if spec.kind == "math"
        else answers_equal(spec, gold, predicted)
    )


def gold_answer(spec: AnswerSpec, fields: Mapping[str, object], completion: str) -> str:
    """The gold answer of a record, from the field that the spec names or else parsed from its response.

    Returns:
        The answer in the form that `parse_answer` gives.

    Raises:
        DataError: the field is missing or null, isn't text, a number or (for true_false) a bool, isn't one of
            the labels or isn't a number; or the response states no answer.
    """
    if spec.field is None:
        answer = parse_answer(spec, completion)
        if answer is None:
            raise DataError(f"the response states no {spec.kind} answer: {completion[:80]!r}; name answer.field")
        return answer
    if fields.get(spec.field) is None:
        raise DataError(f"the answer field {spec.field!r} is missing or null")
    return _checked(spec, fields[spec.field])


def _checked(spec: AnswerSpec, value: object) -> str:
    """A gold answer given by a field, in the form that `parse_answer` gives."""
    if isinstance(value, bool) and spec.kind == "true_false":
        return str(value).lower()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"the answer field {spec.field!r} holds {type(value).__name__}, not text: {value!r:.80}")
    text = str(value).strip()
    match spec.kind:
        case "choice" | "true_false":
            return _as_label(spec, text)
        case "number":
            answer = sole_number(_readable(spec, text))
            if answer is None and any(character.isdigit() for character in text):
                raise DataError(
                    f"the answer field {spec.field!r} holds {text[:80]!r}, which is not one number: a gold answer "
                    "is never a part of what the field holds"
                )
        case "math":
            answer = parse_math(_readable(spec, text)) if "\\boxed" in text else text
        case "regex":
            answer = _first_match(spec.pattern or "", text) or _collapsed(text)
        case _:
            answer = _collapsed(text)
    if not answer:
        raise DataError(f"the answer field {spec.field!r} holds no {spec.kind} answer: {text[:80]!r}")
    return answer


def _as_label(spec: AnswerSpec, text: str) -> str:
    labels = spec.labels or _TRUE_FALSE
    for label in labels:
        if _folded(label) == _folded(text):
            return label
    raise DataError(
        f"the answer field {spec.field!r} holds {text[:80]!r}, which is none of {', '.join(labels)}; name it in "
        "`answer.labels`, as the field writes it"
    )


def _readable(spec: AnswerSpec, text: str) -> str:
    """The text as it is read: parted, without reasoning and, where its characters aren't compared, plain."""
    return parted(without_reasoning(text if spec.kind in {"exact", "regex"} else plain(text)))


def _first_match(pattern: str, text: str) -> str | None:
    found = ask("regex", [pattern, text], _PATIENCE_S)
    if not isinstance(found, list):
        raise DataError(
            f"answer.pattern: {pattern!r} takes too long on a text of {len(text)} characters; write it without repeats "
            "inside repeats"
        )
    return _collapsed(found[0]) or None


def _folded(text: str) -> str:
    return nfc(text).casefold()


def _collapsed(text: str | None) -> str:
    return " ".join(nfc(text or "").split())

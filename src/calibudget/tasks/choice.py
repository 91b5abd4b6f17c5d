r"""Reading one of a few labels from a response.

An explicit statement ("the correct answer is answer1", "Answer: (B)", "\boxed{true}", or a first line that is
nothing but a label) wins over a mere mention; among statements, as among mentions, the first wins, so that
questions and answers invented afterwards change nothing. Labels count as whole words in any case, and
"answer 1" is answer1. A run of labels ("answer1/answer2/answer3", "answer1, answer2, answer3", or two of them
that end a phrase) is the answer format repeated, not an answer; a label after "not" is none either. Single
letters, bare numbers, yes and no are too common in prose to count as mentions unless they stand in brackets, open
the text, or follow "option".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_OPENER: Final = (
    r"(?:\b(?:answer|option|choice|solution|ending|response|prediction|conclusion|label)[*_\"' ]{0,8}"
    r"(?:(?:is|are|was|(?:would|should|will|must) be)\b|[:=])"
    r"|\b(?:choose|pick|select)(?=[\s:])|####|\\boxed ?\{)"
)
# Repetitions are bounded: degenerate responses are thousands of characters of one kind.
_DECORATION: Final = r"[\s:=*_\"'`(\[{$>]{0,24}"
_FILLER: Final = (
    r"(?:(?:the|option|choice|answer|letter|number|most likely|probably|definitely|clearly|indeed)\b[\s:]{0,4}"
    r"|\\(?:text|mathrm|textbf|mathbf) ?\{\s?){0,4}"
)
_CLOSING: Final = r"[\"'`*_)\]}$]{0,8}"
_NOT_NEGATED: Final = r"(?<!\bnot )(?<!n't )"
_JOIN: Final = r"(?:/| or )"
_NOT_JOINED: Final = r"(?<!/)(?<! or )"
#: What else may join labels; two of them may also be a label and the beginning of what is said of another one.
_LOOSE_JOIN: Final = r"(?:[ \t]*[,&/]|[ \t]+(?:and|or)\b|[ \t]*,[ \t]*(?:and|or)\b)?[ \t]*"
_PHRASE_END: Final = r"(?=[\"'`*_)\]}$]{0,8}[ \t]*(?:[.!?]|\n|\Z))"
_LINE_END: Final = re.compile(rf"{_CLOSING}[.;!?]?{_CLOSING}[ \t]*\n")
#: What may follow a stated label so that nothing after it can change which label was read.
_END: Final = re.compile(rf"{_LINE_END.pattern}|{_CLOSING}[.;!?]{_CLOSING}[ \t]")
_SYNONYMS: Final = {"yes": "true", "no": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One set of labels, compiled.

    Attributes:
        spellings: the label of each folded spelling, and of each squeezed one.
        word: matches any label.
        runs: matches labels one after the other.
        statements: matches what states an answer; the only group that takes part holds the label.
        mentions: matches what only mentions one, likewise.
        endings_known: whether `_END` after a statement settles it: no label holds punctuation.
    """

    spellings: Mapping[str, str]
    word: re.Pattern[str]
    runs: re.Pattern[str]
    statements: re.Pattern[str]
    mentions: re.Pattern[str]
    endings_known: bool


def parse_choice(labels: tuple[str, ...], text: str, *, true_false: bool = False) -> str | None:
    """The label that a plain text gives as its answer, as `labels` spells it; None if it gives none.

    Args:
        labels: the labels, distinct under case folding.
        text: plain text, cut where it runs on.
        true_false: whether "yes" and "no" stand for the labels "true" and "false".
    """
    reader = _reader(labels, true_false)
    text = _without_runs(reader, text)
    match = reader.statements.search(text) or reader.mentions.search(text)
    if match is None:
        return None
    return _label(reader, match[match.lastgroup or 0])


def choice_is_final(labels: tuple[str, ...], text: str, *, true_false: bool = False) -> bool:
    """Whether the label that a plain text states stays the same whatever follows."""
    reader = _reader(labels, true_false)
    text = _without_runs(reader, text)
    match = reader.statements.search(text) if reader.endings_known else None
    if match is None:
        return False
    end = _LINE_END if match.lastgroup == "bare" else _END
    return end.match(text, match.end(match.lastgroup or 0)) is not None


@lru_cache(maxsize=256)
def _reader(labels: tuple[str, ...], true_false: bool) -> _Reader:
    meanings = {label: label for label in labels} | (_SYNONYMS if true_false else {})
    words = sorted(meanings, key=lambda word: (-len(word), word))
    careful = [word for word in words if len(word) == 1 or word.isdecimal() or word not in labels]
    loose = [word for word in words if word not in careful]
    every = _any_of(words)
    lone = rf"(?!{_JOIN}{every}|/\d)"
    bare = rf"\A{_DECORATION}(?P<bare>{every})(?={_CLOSING}[.!]?{_CLOSING}[ \t]*(?:\n|\Z))"
    stated = rf"{_OPENER}{_DECORATION}{_FILLER}{_DECORATION}{_NOT_JOINED}(?P<stated>{every}){lone}"
    mentions = []
    if loose:
        mentions.append(rf"{_NOT_NEGATED}{_NOT_JOINED}(?P<loose>{_any_of(loose)}){lone}")
    if careful:
        opening = rf"\A\W*(?P<opening>{_any_of(careful)})(?=[).:,;!]|\s*(?:\n|\Z)|(?<=\w\w)\s){lone}"
        bracketed = rf"{_NOT_NEGATED}\((?P<bracketed>{_any_of(careful)})\)"
        named = rf"\b(?:option|choice|answer) (?P<named>{_any_of(careful)}){lone}"
        mentions += [opening, bracketed, named]
    spellings = {_squeezed(word.casefold()): label for word, label in meanings.items()}
    return _Reader(
        spellings=spellings | {word.casefold(): label for word, label in meanings.items()},
        word=re.compile(every, re.IGNORECASE),
        runs=re.compile(
            rf"{every}(?:{_LOOSE_JOIN}{every}){{2,64}}|{every}{_LOOSE_JOIN}{every}{_PHRASE_END}", re.IGNORECASE
        ),
        statements=re.compile(rf"{bare}|{stated}", re.IGNORECASE),
        mentions=re.compile("|".join(mentions), re.IGNORECASE),
        endings_known=all(re.fullmatch(r"\w+(?:[ _-]\w+)*", label) for label in labels),
    )


def _label(reader: _Reader, word: str) -> str:
    """The label that is spelt so."""
    word = word.casefold()
    return reader.spellings.get(word) or reader.spellings[_squeezed(word)]


def _without_runs(reader: _Reader, text: str) -> str:
    """The text with runs of different labels blanked, at its own length; one label said again is no run."""

    def blanked(match: re.Match[str]) -> str:
        labels = {_label(reader, word) for word in reader.word.findall(match[0])}
        return match[0] if len(labels) == 1 else " " * len(match[0])

    return reader.runs.sub(blanked, text)


def _squeezed(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word)


def _any_of(words: list[str]) -> str:
    return "(?:" + "|".join(map(_word, words)) + ")"


def _word(word: str) -> str:
    """The pattern of one spelling as a whole word; a lower-case letter must end its phrase ("a" is an article)."""
    if re.fullmatch(r"[A-Za-z]", word):
        lower = rf"(?-i:{word.lower()})(?=[).,;:!?\]}}\"'*]|[ \t]*(?:\n|\Z))"
        return rf"(?<!\w)(?:(?-i:{word.upper()})(?!\w)|{lower})"
    pattern = re.escape(word).replace(r"\ ", r"[ \t]+")
    pattern = re.sub(r"(?<=[A-Za-z])(?=[0-9])", "[ _-]?", pattern)
    before = r"(?<![\w.,])" if word.isdecimal() else r"(?<!\w)"
    after = r"(?![\w%]|[.,]\d)" if word[-1].isdecimal() else r"(?!\w)"
    return f"{before}{pattern}{after}"

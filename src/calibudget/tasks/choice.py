r"""Reading one of a few labels from a response.

An explicit statement ("the correct answer is answer1", "Answer: (B)", "\boxed{true}", or a first line that is
nothing but a label) wins over a label that is said to be right ("B is correct"), and that over a mere mention; among
statements, as among mentions, the first wins, so that questions and answers invented afterwards change nothing. Labels
count as whole words in any case, and "answer 1" is answer1. A run of labels ("answer1/answer2/answer3", "answer1,
answer2, answer3", or two of them that end a phrase) is the answer format repeated, not an answer; a label that is
ruled out ("not B", "B is wrong") is none either. Single letters, bare numbers, yes and no are too common in prose to
count as mentions unless they stand in brackets, open the text, or follow "option". All languages of `answer_phrases`
are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from calibudget.tasks.answer_phrases import (
    ENGLISH,
    LANGUAGES,
    Phrases,
    answer_opener,
    any_of,
    joined,
    parted,
    spelt,
    whole,
)
from calibudget.values import nfc

#: What may stand around a statement's parts; repetitions are bounded: degenerate responses are thousands of characters
#: of one kind.
_DECORATION: Final = r"[\s:=*_\"'`(\[{$>]{0,24}"
_CLOSING: Final = r"[\"'`*_)\]}$]{0,8}"
_LATEX: Final = r"\\(?:text|mathrm|textbf|mathbf) ?\{\s?"
_PHRASE_END: Final = r"(?=[\"'`*_)\]}$]{0,8}[ \t]*(?:[.!?]|\n|\Z))"
_LINE_END: Final = re.compile(rf"{_CLOSING}[.;!?]?{_CLOSING}[ \t]*\n")
#: What may follow a stated label so that nothing after it can change which label was read.
_END: Final = re.compile(rf"{_LINE_END.pattern}|{_CLOSING}[.;!?]{_CLOSING}[ \t]")
_SYNONYMS: Final = {"yes": "true", "no": "false"}
#: What takes a denial back: "not only", "isn't wrong".
_NOT_DENIED: Final = r"(?![ \t]+(?:only|just|wrong|incorrect|false|bad|out|impossible)\b)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One set of labels, compiled.

    Attributes:
        spellings: the label of each folded spelling, and of each squeezed one.
        word: matches any label.
        denials: matches labels that are ruled out, with the words that do so; `but` takes part where another follows.
        runs: matches labels one after the other.
        tiers: what states an answer, what says that a label is right, what only mentions one, in this order; the only
            named group that takes part holds the label.
        endings_known: whether `_END` after a statement settles it: no label holds punctuation.
    """

    spellings: Mapping[str, str]
    word: re.Pattern[str]
    denials: re.Pattern[str]
    runs: re.Pattern[str]
    tiers: tuple[re.Pattern[str], ...]
    endings_known: bool


def parse_choice(labels: tuple[str, ...], text: str, *, true_false: bool = False) -> str | None:
    """The label that a plain and parted text, cut where it runs on, gives as its answer, as `labels` spells it.

    Labels are distinct under case folding; with `true_false` "yes" and "no" stand for the labels "true" and "false".
    """
    reader = _reader(labels, true_false)
    text = _decided(reader, text)
    for tier in reader.tiers:
        match = tier.search(text)
        if match is not None:
            return _label(reader, match[match.lastgroup or 0])
    return None


def choice_is_final(labels: tuple[str, ...], text: str, *, true_false: bool = False) -> bool:
    """Whether the label that a plain and parted text states stays the same whatever follows."""
    reader = _reader(labels, true_false)
    if not reader.endings_known or reader.word.search(text) is None:  # asked again and again while a text grows
        return False
    match = reader.tiers[0].search(_decided(reader, text))
    if match is None:
        return False
    end = _LINE_END if match.lastgroup == "bare" else _END
    return end.match(text, match.end(match.lastgroup or 0)) is not None


@lru_cache(maxsize=256)
def _reader(labels: tuple[str, ...], true_false: bool) -> _Reader:
    meanings = {nfc(label): label for label in labels} | (_SYNONYMS if true_false else {})
    words = sorted(meanings, key=lambda word: (-len(word), word))
    every = _any_of(words)
    spellings = {_squeezed(word.casefold()): label for word, label in meanings.items()}
    return _Reader(
        spellings=spellings | {word.casefold(): label for word, label in meanings.items()},
        word=re.compile(every, re.IGNORECASE),
        denials=re.compile(_denials(every), re.IGNORECASE),
        runs=re.compile(_runs(every), re.IGNORECASE),
        tiers=tuple(
            re.compile(pattern, re.IGNORECASE)
            for pattern in (
                _statements(every),
                rf"(?<!/)(?P<confirmed>{every}){_CLOSING}[ \t]*{_every_language('right', every)}",
                _mentions(words, labels),
            )
        ),
        endings_known=all(re.fullmatch(r"\w+(?:[ _-]\w+)*", label) for label in labels),
    )


def _label(reader: _Reader, word: str) -> str:
    """The label that is spelt so."""
    word = joined(word).casefold()
    return reader.spellings.get(word) or reader.spellings[_squeezed(word)]


def _decided(reader: _Reader, text: str) -> str:
    """The text, at its own length, without labels that are ruled out and without runs of labels.

    Of a run of one label said again the first stays. Where a denial goes on to another label ("not A but B"), a colon
    stands in its place, so that a statement before it is that of the other.
    """

    def undenied(match: re.Match[str]) -> str:
        return (":" if match.lastgroup else " ").ljust(len(match[0]))

    def unrepeated(match: re.Match[str]) -> str:
        words = list(reader.word.finditer(match[0]))
        is_one = len({_label(reader, word[0]) for word in words}) == 1
        return (match[0][: words[0].end()] if is_one else "").ljust(len(match[0]))

    return reader.runs.sub(unrepeated, reader.denials.sub(undenied, text))


def _statements(every: str) -> str:
    """What states a label: "the answer is B", or a first line of nothing else."""

    def filler(phrases: Phrases) -> str:
        return rf"{any_of(phrases.article)}[\s:]{{0,4}}"

    fixed = rf"####|<answer>|\\boxed ?\{{|{any_of(ENGLISH.choose)}(?=[\s:])"
    openers = [rf"(?:{fixed}|{answer_opener(ENGLISH, options=True)}){_DECORATION}(?:{filler(ENGLISH)}|{_LATEX}){{0,4}}"]
    for phrases in LANGUAGES.values():
        chosen = f"|{any_of(phrases.choose)}" if phrases.choose else ""
        openers.append(rf"(?:{answer_opener(phrases, options=True)}{chosen}){_DECORATION}(?:{filler(phrases)}){{0,4}}")
    ends = any_of("|".join(phrases.end for phrases in LANGUAGES.values() if phrases.end))
    bare = rf"\A{_DECORATION}(?P<bare>{every})(?={_CLOSING}[ \t]*{ends}?[.!]?{_CLOSING}[ \t]*(?:\n|\Z))"
    return rf"{bare}|(?:{'|'.join(openers)}){_DECORATION}(?<!/)(?P<stated>{every})(?!/\d)"


def _mentions(words: list[str], labels: Sequence[str]) -> str:
    """What only mentions a label; one that is common in prose must open the text, stand in brackets or be named."""
    careful = [word for word in words if len(word) == 1 or word.isdecimal() or word not in map(nfc, labels)]
    loose = [word for word in words if word not in careful]
    found = [rf"(?<!/)(?P<loose>{_any_of(loose)})(?!/\d)"] if loose else []
    if careful:
        every = _any_of(careful)
        nouns = "|".join(f"{phrases.answer}|{phrases.option}" for phrases in LANGUAGES.values())
        named = any_of(f"answer|option|choice|{nouns}")
        found += [
            rf"\A\W*(?P<opening>{every})(?=[).:,;!]|\s*(?:\n|\Z)|(?<=\w\w)\s)(?!/\d)",
            rf"\((?P<bracketed>{every})\)",
            rf"{named}[ \t]?(?P<named>{every})(?!/\d)",
        ]
    return "|".join(found)


def _denials(every: str) -> str:
    """Labels that are ruled out: "not B", "ruling out B and C", "B is wrong"."""
    words = rf"[ \t]*,?[ \t]*(?:[&/]|{_every_language('or_')}|{_every_language('and_')})[ \t]*"
    listed = rf"(?:{every}(?:[ \t]*,[ \t]*{every})*{words}{every}|{every})"
    article = rf"(?:[ \t]*{_every_language('article')}){{0,3}}"
    but = rf"{_CLOSING}(?:[ \t]*,?[ \t]*(?P<but%d>{_every_language('but', every)}))?"
    before = rf"(?!{every}){_every_language('not_', every)}{article}[ \t:*_\"'(\[]{{0,8}}{listed}{but % 1}"
    after = rf"{every}(?:{words}{every})?{_CLOSING}[ \t]*{_every_language('wrong', every)}{_NOT_DENIED}{but % 2}"
    return f"{before}|{after}"


def _runs(every: str) -> str:
    """Labels one after the other: three of any kind, two joined by "or", or two that end a phrase."""
    ors = _every_language("or_")
    joined = rf"[ \t]*(?:/|{ors})[ \t]*"
    loosely = rf"(?:[ \t]*,?[ \t]*(?:[&/]|{ors}|{_every_language('and_')})|[ \t]*,)?[ \t]*"
    return rf"{every}(?:{loosely}{every}){{2,64}}|{every}(?:{joined}{every})+|{every}{loosely}{every}{_PHRASE_END}"


def _every_language(field: str, every: str | None = None) -> str:
    """The phrases of a field in all languages; without those that hold a label themselves ("is false")."""
    phrases = "|".join(getattr(language, field) for language in (ENGLISH, *LANGUAGES.values())).split("|")
    free = [phrase for phrase in phrases if phrase and not (every and re.search(every, parted(phrase), re.IGNORECASE))]
    return any_of("|".join(free))


def _squeezed(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word)


def _any_of(words: list[str]) -> str:
    return "(?:" + "|".join(map(_word, words)) + ")"


def _word(word: str) -> str:
    """The pattern of one spelling as a whole word; a lower-case letter must end its phrase ("a" is an article)."""
    if len(word) == 1 and word.lower() != word.upper():
        lower = rf"(?-i:{word.lower()})(?=[).,;:!?\]}}\"'*]|[ \t]*(?:\n|\Z))"
        return rf"(?<!\w)(?:(?-i:{word.upper()})(?!\w)|{lower})"
    pattern = re.sub(r"(?<=[A-Za-z])(?=[0-9])", "[ _-]?", spelt(word))
    before = r"(?<![\w.,])" if word.isdecimal() else r"(?<!\w)"
    after = r"(?![\w%]|[.,]\d)" if word[-1].isdecimal() else r"(?!\w)"
    return whole(pattern, before=before, after=after)

r"""Plain text for parsing, where a response ends when a model runs on, and where it states a free answer.

The first two rules work character by character or at fixed marks, so what they say of a text doesn't change when more
text follows; `answer_is_final` rests on that.

An answer is stated in a box, after "####" or "<answer>", or after "the answer is". A boxed one is the most explicit, so
where there is one the others don't count. Of several statements of a form the last one counts, since models correct
themselves, with two limits that keep invented questions out: a "####" line that holds an answer closes the response
(the convention of GSM8K), and after the first statement reading stops at the next question mark or numbered heading
("Problem 2:").
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from calibudget.tasks.answer_phrases import ENGLISH, LANGUAGES, answer_opener, any_of, is_parted
from calibudget.values import nfc

_SINGLE: Final = {"\u2212": "-", "\u2013": "-", "\u2012": "-", "\ufe63": "-", "\u2010": "-", "\u2011": "-"} | {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    **dict.fromkeys("\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u300a\u300b\u3008\u3009", '"'),
    **dict.fromkeys("\u3010\u3014\u3016", "["),
    **dict.fromkeys("\u3011\u3015\u3017", "]"),
    **dict.fromkeys("\u3001\u060c", ","),
    **dict.fromkeys("\u3002\uff61\u0964", "\n"),  # ends of sentences, often with nothing after them
    "\u061f": "?",
    "\u061b": ";",
    "\u066b": ".",
    "\u066c": ",",
    "\u2028": "\n",
    "\u2029": "\n",
    "\u0085": "\n",
    "\r": "",
}

_LATEX: Final = re.compile(r"\\(?:text|mbox|mathrm|textbf|mathbf|textit|operatorname)\s*\{[^{}]*\}|\\[a-zA-Z]+")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")


class _Plain(dict[int, str]):
    """Translation table made on demand: typographic forms of what ASCII has become ASCII, invisible ones go."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if character in _SINGLE:
            plain = _SINGLE[character]
        elif category == "Nd":
            plain = str(unicodedata.decimal(character))
        elif 0xFF01 <= code <= 0xFF5E:
            plain = chr(code - 0xFEE0)
        elif category == "Zs":
            plain = " "
        else:
            plain = "" if category == "Cf" else character
        self[code] = plain
        return plain


_PLAIN: Final = _Plain()
#: A space that doesn't break, or a narrow one, between groups of digits.
_GROUPED: Final = re.compile(r"(?<=\d)[\u00a0\u202f\u2007\u2009](?=\d{3}(?!\d))")

_SPECIAL: Final = r"<\|[a-z_]+\|>|</s>|\[INST\]|<start_of_turn>|<end_of_turn>"
_QUESTIONS: Final = any_of("|".join(phrases.question for phrases in (ENGLISH, *LANGUAGES.values())))
_HEADING: Final = (
    r"#{2,4} *(?:instruction|question|problem|input|user|human)"
    rf"|\*{{0,2}}(?:next |new |another )?{_QUESTIONS}\*{{0,2}} *:"
    r"|below is an instruction"
    r"|please (?:choose|answer|select|fill in) (?:the|a) "
)
#: What opens and what closes reasoning: tags, other families' marks, gpt-oss's channels with their marks and without.
_REASONING_MARKS: Final = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")),
    (r"\[think\]", r"\[/think\]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|start_thinking\|>", r"<\|end_thinking\|>"),
    (r"<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final<\|message\|>"),
    (r"\A\s*(?-i:analysis(?=[A-Z]))", "(?-i:assistantfinal)"),
)
_REASONING: Final = re.compile(
    "|".join(rf"{opens}.*?(?:{closes}|\Z)" for opens, closes in _REASONING_MARKS), re.IGNORECASE | re.DOTALL
)
#: The end of reasoning that the prompt has opened.
_REASONED: Final = re.compile(
    rf"\A.*(?:{'|'.join(closes for _, closes in _REASONING_MARKS)})", re.IGNORECASE | re.DOTALL
)
#: A letter and the marks that belong to it.
_LETTER: Final = re.compile(r"[^\W\d_][\u0300-\u036f]+")
_RUN_ON: Final = re.compile(rf"(?:{_SPECIAL})|(?<=\S)[^\S\n]*+\n\s*+(?:{_HEADING})", re.IGNORECASE)


def plain(text: str) -> str:
    """The text with digits, dashes, quotes, spaces and full-width forms as ASCII has them, invisibles removed.

    Spaces that don't break, or are narrow, are dropped where they group the digits of a number.
    """
    if text.isascii() and "\r" not in text:
        return text
    return _GROUPED.sub("", text).translate(_PLAIN)


def without_reasoning(text: str) -> str:
    """The text without what stands between the marks of reasoning, up to its end where that isn't closed.

    An end that nothing opened closes what the prompt has opened: everything before it is reasoning.
    """
    if not any(mark in text for mark in ("<", "[", "\u25c1", "analysis", "assistantfinal")):
        return text
    return _REASONED.sub("", _REASONING.sub("\n", text))


def composed(text: str) -> str:
    """The text with every letter and its accents as one character."""
    return text if text.isascii() else _LETTER.sub(lambda match: nfc(match[0]), text)


def run_on(text: str) -> int | None:
    """Where an invented next question or a chat mark begins in a parted text; None if none does.

    A heading at the very start is no *next* question: some models repeat the question before they answer. A
    numbered one ("Question 2:") may belong to an answer in parts.
    """
    match = _RUN_ON.search(text)
    return match.start() if match else None


def holds_prose(text: str) -> bool:
    """Whether a text holds words, outside LaTeX commands and their text arguments.

    A word is three letters or longer, or anything in a script that puts no blanks between them, if the text is parted.
    """
    bare = _LATEX.sub(" ", text)
    return is_parted(bare) or _WORD.search(bare) is not None


_OPENER: Final = re.compile(
    r"####|<answer>"
    rf"|\banswer\s+(?:to|for|of)\s+[^.?!\n]{{1,80}}?[*_\"' ]{{0,8}}(?:{any_of(ENGLISH.is_)}|[:=])|"
    + "|".join(answer_opener(phrases, options=False) for phrases in (ENGLISH, *LANGUAGES.values())),
    re.IGNORECASE,
)
_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[A-Za-z0-9]))")
_CLOSING_LINE: Final = re.compile(r"####[ \t]*[^\s#][^\n]*\n")
#: How many statements of a form are looked at, the last ones: a degenerate response may hold thousands.
_MOST: Final = 50
_NEXT_QUESTION: Final = re.compile(
    r"\?|\n\s{0,8}\*{0,2}(?:question|problem|exercise|q)\s{0,2}\d{1,4}\*{0,2}\s{0,2}[:.)]", re.IGNORECASE
)
_SENTENCE_END: Final = re.compile(r"\.(?=\s|\Z)|\n|\?|</answer>")


def is_closed(text: str) -> bool:
    """Whether a plain text has a complete "####" line with something on it."""
    return _CLOSING_LINE.search(text) is not None


def closed(text: str) -> str:
    """A plain text up to the end of its first complete "####" line with something on it; whole without one."""
    match = _CLOSING_LINE.search(text)
    return text[: match.end()] if match else text


def stated_answers(text: str) -> list[str]:
    """What a closed plain text states as its answer, the statement that counts first, as it stands in the text."""
    openers = list(_OPENER.finditer(text))
    boxes = list(_BOX.finditer(text))
    starts = [match.start() for match in openers + boxes]
    if not starts:
        return []
    ending = _NEXT_QUESTION.search(text, min(starts))
    limit = ending.start() if ending else len(text)
    boxes, openers = ([match for match in found if match.start() < limit] for found in (boxes, openers))
    boxed = [match["bare"] or _balanced(text, match.end()) for match in boxes[-_MOST:]]
    stated = [content.strip() for content in boxed if content]
    if not stated:
        stated = [_tail(text, match.end()) for match in openers[-_MOST:]]
    return [content for content in reversed(stated) if content]


def has_open_box(text: str) -> bool:
    """Whether a plain text opens a box that it never closes, as when decoding stopped inside it."""
    return any(match["bare"] is None and _balanced(text, match.end()) is None for match in _BOX.finditer(text))


def _tail(text: str, start: int) -> str:
    """The rest of the sentence after an opener, which may begin on the next line."""
    while start < len(text) and (text[start].isspace() or text[start] in ":=*_"):
        start += 1
    end = _SENTENCE_END.search(text, start)
    return text[start : end.start() if end else len(text)].strip()


def _balanced(text: str, start: int) -> str | None:
    """What stands between the brace that opens right before `start` and the one that closes it; None if none does."""
    depth = 1
    for index in range(start, len(text)):
        if text[index] in "{}" and (index == 0 or text[index - 1] != "\\"):
            depth += 1 if text[index] == "{" else -1
            if depth == 0:
                return text[start:index]
    return None

"""Plain text for parsing, and where a response ends when a model runs on.

Both rules work character by character or at fixed marks, so what they say of a text doesn't change when more
text follows; `answer_is_final` rests on that.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SINGLE: Final = {"\u2212": "-", "\u2013": "-", "\u2012": "-", "\ufe63": "-", "\u2010": "-", "\u2011": "-"} | {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
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

_SPECIAL: Final = r"<\|[a-z_]+\|>|</s>|\[INST\]|<start_of_turn>|<end_of_turn>"
_HEADING: Final = (
    r"#{2,4} *(?:instruction|question|problem|input|user|human)"
    r"|\*{0,2}(?:next |new |another )?(?:q|question|problem|exercise|instruction|user|human)\*{0,2} *:"
    r"|below is an instruction"
    r"|please (?:choose|answer|select|fill in) (?:the|a) "
)
_RUN_ON: Final = re.compile(rf"(?:{_SPECIAL})|(?<=\S)[^\S\n]*+\n\s*+(?:{_HEADING})", re.IGNORECASE)


def plain(text: str) -> str:
    """The text with digits, dashes, quotes, spaces and full-width forms as ASCII has them, invisibles removed."""
    return text if text.isascii() and "\r" not in text else text.translate(_PLAIN)


def run_on(text: str) -> int | None:
    """Where an invented next question or a chat mark begins in a plain text; None if none does.

    A heading at the very start is no *next* question: some models repeat the question before they answer. A
    numbered one ("Question 2:") may belong to an answer in parts.
    """
    match = _RUN_ON.search(text)
    return match.start() if match else None


def balanced(text: str, start: int) -> str | None:
    """What stands between the brace that opens right before `start` and the one that closes it; None if none does."""
    depth = 1
    for index in range(start, len(text)):
        if text[index] in "{}" and (index == 0 or text[index - 1] != "\\"):
            depth += 1 if text[index] == "{" else -1
            if depth == 0:
                return text[start:index]
    return None


def holds_prose(text: str) -> bool:
    """Whether a text holds words, three letters or longer, outside LaTeX commands and their text arguments."""
    return _WORD.search(_LATEX.sub(" ", text)) is not None

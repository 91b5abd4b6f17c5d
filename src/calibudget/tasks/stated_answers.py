r"""Where a response states a free answer: in a box, after "####" or "<answer>", or after "the answer is".

A boxed answer is the most explicit form, so where there is one the others don't count. Of several statements of
a form the last one counts, since models correct themselves, with two limits that keep invented questions out:
a "####" line that holds an answer closes the response (the convention of GSM8K), and after the first statement
reading stops at the next question mark or numbered heading ("Problem 2:").
"""

from __future__ import annotations

import re
from typing import Final

from calibudget.tasks.answer_phrases import ENGLISH, LANGUAGES, answer_opener, any_of
from calibudget.tasks.plain_text import balanced

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
    boxed = [_boxed(text, match) for match in boxes[-_MOST:]]
    stated = [content for content in boxed if content is not None]
    if not stated:
        stated = [_tail(text, match.end()) for match in openers[-_MOST:]]
    return [content for content in reversed(stated) if content]


def has_open_box(text: str) -> bool:
    """Whether a plain text opens a box that it never closes, as when decoding stopped inside it."""
    return any(match["bare"] is None and balanced(text, match.end()) is None for match in _BOX.finditer(text))


def _boxed(text: str, match: re.Match[str]) -> str | None:
    content = match["bare"] or balanced(text, match.end())
    return content.strip() if content else None


def _tail(text: str, start: int) -> str:
    """The rest of the sentence after an opener, which may begin on the next line."""
    while start < len(text) and (text[start].isspace() or text[start] in ":=*_"):
        start += 1
    end = _SENTENCE_END.search(text, start)
    return text[start : end.start() if end else len(text)].strip()

"""The words of a text, by which texts are compared whatever their case, punctuation and spacing."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from calibudget.records import Record
from calibudget.values import nfc

#: Scripts written without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
#: Letters beyond the basic plane, emoji apart.
_BEYOND: Final = "\U00010000-\U0001efff\U00020000-\U0003ffff"
_ascii_words: Final = re.compile(r"[a-z0-9]+").findall
_has_unspaced: Final = re.compile(f"[{_UNSPACED}]").search


def words(text: str) -> list[str]:
    """Runs of letters, digits and their marks, NFC under full case folding; none in a text without any.

    In scripts that put no spaces between words each character is a word.
    """
    if text.isascii():
        return _ascii_words(text.lower())
    folded = nfc(text).casefold()
    spaced, unspaced = _patterns()
    runs = spaced.findall(folded)
    if not _has_unspaced(folded):
        return runs
    return [word for run in runs for word in (unspaced.findall(run) if _has_unspaced(run) else [run])]


def word_runs(record: Record, length: int) -> list[bytes]:
    """The different runs of words of a record, in no set's order; all its words where they are fewer."""
    own = words(" ".join([*(turn.content for turn in record.prompt), record.completion]))
    count = max(1, len(own) - length + 1)
    return [*dict.fromkeys(" ".join(own[at : at + length]).encode() for at in range(count))] if own else []


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Runs of letters, digits and marks; and what such a run is parted into."""
    basic = [chr(point) for point in range(0x10000) if unicodedata.category(chr(point))[0] in "LMN"]
    marks = "".join(one for one in basic if unicodedata.category(one)[0] == "M")
    return re.compile(f"[{''.join(basic)}{_BEYOND}]+"), re.compile(f"[{_UNSPACED}][{marks}]*|[^{_UNSPACED}]+")

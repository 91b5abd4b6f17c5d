"""Marks in a text that stand for an image, a video or a sound, told from the words of a text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from calibudget.errors import DataError
from calibudget.sources.field_meanings import way_out

_QUOTES: Final = ("`", '"', "'")
_WORD_AFTER: Final = re.compile(r"\s+(?:html\s+)?(?:tag|element|attribute)", re.IGNORECASE)
_KINDS: Final = "image|img|video|audio|speech|sound"
_TOKEN: Final = re.compile(
    rf"<\|?(?:(?:start|begin|end)_of_)?({_KINDS})"
    r"(?:here|[_ -]?(?:\d+|pad|context|(?:soft_)?token|placeholder|bos|eos|start|end))?(?:\||\s?/)?>"
    rf"|<\|(vision|media)_(?:start|end|pad|begin)\|>|<__(media|{_KINDS})__>",
    re.IGNORECASE,
)
#: A path between two tags, or anything between two at the start of a line: markup says it only among other tags.
_PAIR: Final = re.compile(
    rf"^[ \t(]*<({_KINDS})>[^<>\n]+</\1>|(?<![`\"'])<({_KINDS})>[^<>\s]*(?:/|\.\w{{2,4}})</\2>",
    re.IGNORECASE | re.MULTILINE,
)
#: What tells one image of several: a number, or a file's name.
_FILE: Final = r"(?:[_ -]?\d*|:[^\]\n]*\.\w{2,4})"
#: A word in brackets, alone in its line or at an end of the text.
_BRACKETED: Final = re.compile(
    rf"(?:\A[ \t]*|^[ \t]*(?=\[[^\]\n]*\][ \t]*$))\[(image|video|audio){_FILE}\](?![(\[:])"
    rf"|\[(image|video|audio){_FILE}\]\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
#: A picture in other words: as Qwen-VL's sets name it (HTML's `img` is never closed), as Pixtral's mark, as its bytes.
_PICTURE: Final = re.compile(
    r"""<(?i:img)>[^<>\n]+</(?i:img)>|(?<![`"'])\[IMG\](?!.*\[/IMG\])"""
    r"|(?:^[ \t]*|!\[[^\]\n]*\]\([ \t]*<?)data:image/[\w.+-]+[;,]",
    re.MULTILINE | re.DOTALL,
)
#: What a text about HTML holds, where `<img>` is a word.
_OF_HTML: Final = re.compile(
    rf"<img\s|</?(?!(?:{_KINDS})\s?/?>)[a-z][a-z0-9]*[\s/>]|\b(?:html|css|xml|markup)\b", re.IGNORECASE
)
#: What stands before a type in angle brackets, as in `vector<video>`. `<Image>` is a type by its capital.
_GENERIC: Final = re.compile(
    r"(?:vector|list|array|vec|set|deque|queue|stack|option(?:al)?|ptr|box|future|iterable|sequence|collection|span)\Z",
    re.IGNORECASE,
)
_COMPONENT: Final = re.compile(r"<[A-Z][a-z]+(?:\s?/)?>")
_LINE_END: Final = re.compile(r"[\s.?!:]*(?:\n|\Z)")


#: Of these every mark holds one, its case aside; none has an "i", which matches letters that fold otherwise.
_PIECES: Final = ("mage", "mg", "deo", "aud", "speech", "sound", "|>", "__>")


def may_hold_media(text: str) -> bool:
    """Whether a text holds what no mark of media lacks: a fiftieth of the time of looking for one."""
    if "<" not in text and "[" not in text and ("/" not in text or "data:image/" not in text):
        return False
    folded = text.casefold()
    return any(piece in folded for piece in _PIECES)


def refuse_media_marks(text: str, place: str, ignored: Collection[str]) -> None:
    """Refuse a text with a token that stands for an image, a video or a sound, unless that is left out on purpose.

    What is written like one is also a word of HTML: one that is closed later, stands in quotes, or is called a tag is.
    """
    if not may_hold_media(text):
        return
    picture = _PICTURE.search(text)
    if picture is not None and "image" not in ignored:
        raise DataError(f"{place} holds {picture[0].strip():.60}, which is an image; {way_out('image')}")
    marks = [*_BRACKETED.finditer(text), *([] if _OF_HTML.search(text) else _PAIR.finditer(text))]
    for found in (*marks, *(one for one in _TOKEN.finditer(text) if not _is_word(one, text))):
        kind = _kind(found)
        if kind not in ignored and f"{kind}s" not in ignored:
            raise DataError(f"{place} holds {found[0].strip():.60}, which stands for media; {way_out(kind)}")


def _kind(token: re.Match[str]) -> str:
    """The medium that a token stands for."""
    kind = next(filter(None, token.groups())).lower()
    return "image" if kind in ("img", "vision", "media") else kind


def _is_word(token: re.Match[str], text: str) -> bool:
    """Whether what is written like a token of media is a word of its text."""
    before = text[: token.start()]
    is_closed = token[1] is not None and f"</{token[1].lower()}>" in text
    if is_closed or _WORD_AFTER.match(text, token.end()) or before.endswith(_QUOTES) or _GENERIC.search(before[-20:]):
        return True
    if _COMPONENT.fullmatch(token[0]) and token[0] != "<Img>":
        return True
    if token[0].endswith("/>"):
        return bool(_OF_HTML.search(text))
    if token[0].lower() != "<img>":
        return False
    line = before.rpartition("\n")[2]
    return bool(_OF_HTML.search(text) or (line.strip() and not _LINE_END.match(text, token.end())))

"""What a field of a record may hold: counts, numbers, digests, and mappings keyed by source label.

The types are checked where a record is read from a file. Numbers are strict: 3.0 and true are no integers, "3" is no
number. A record made in the program isn't checked by them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict

#: Largest integer that a JSON number carries exactly (RFC 8785 follows IEEE 754 doubles).
MAX_SAFE_INTEGER: Final = 2**53 - 1
Value = TypeVar("Value")
#: Of a record that a recipe holds: no unknown fields, and types as strict as its annotations say.
CHECKED: Final = ConfigDict(extra="forbid", strict=False)


def in_order(values: Mapping[str, Value]) -> dict[str, Value]:
    """The mapping in code-point order of its keys."""
    return dict(sorted(values.items()))


def one_or_more(value: object) -> object:
    """A text by itself as a tuple of it, and a list as a tuple; for fields that hold one or more."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def shorthand(field: str, kind: Any) -> BeforeValidator:
    """Takes a text in place of a mapping as the value of its field; `kind` is what both may be."""
    return BeforeValidator(
        lambda value: {field: value} if isinstance(value, str) else value, json_schema_input_type=kind
    )


def _with_labels(values: object) -> object:
    if isinstance(values, Mapping):
        check_labels(sorted(map(str, values)))
    return values


Flag = Annotated[bool, Strict()]
Integer = Annotated[int, Strict()]
#: An integer of at least 0.
Count = Annotated[Integer, Field(ge=0, le=MAX_SAFE_INTEGER)]
Positive = Annotated[Integer, Field(ge=1, le=MAX_SAFE_INTEGER)]
#: Text, not bytes that could be read as one.
Text = Annotated[str, Strict()]
#: A finite double.
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
#: A finite double of at least 0.
Size = Annotated[Number, Field(ge=0)]
#: A double from 0 to 1.
Rate = Annotated[Number, Field(ge=0, le=1)]
#: A SHA-256 in lower-case hexadecimal.
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
ByName = Annotated[Mapping[str, Value], AfterValidator(in_order)]
#: By label of the source, see `check_labels`.
ByLabel = Annotated[ByName[Value], BeforeValidator(_with_labels)]
#: By label of the source, at least one.
Sources = Annotated[Mapping[str, Value], Field(min_length=1), AfterValidator(in_order), BeforeValidator(_with_labels)]

#: Characters that could be a long run of combining marks: no words, no white space, no ASCII.
_MARKS: Final = re.compile(r"[^\w\s\x00-\x7f]{256,}")
#: What such a run leaves of itself in every 32nd character.
_TRACE: Final = re.compile(r"[^\w\s\x00-\x7f]{7}")


def nfc(text: str) -> str:
    """Unicode's form NFC, in time that grows with the text.

    Python's own takes the square of a run of combining marks (40,000 of them: half a minute). Their order by class is
    part of every normal form, so a long run that is put in order first comes out the same.
    """
    if not text.isascii() and _TRACE.search(text[::32]):
        text = _MARKS.sub(_in_order, text)
    return unicodedata.normalize("NFC", text)


def _in_order(run: re.Match[str]) -> str:
    """The run decomposed, the marks between two characters of class 0 sorted by class."""
    decomposed = [part for character in run[0] for part in unicodedata.normalize("NFD", character)]
    keyed, starts = [], 0
    for part in decomposed:
        level = unicodedata.combining(part)
        starts += 2 if level == 0 else 0
        keyed.append((starts + (level != 0), level, part))
    return "".join(part for _, _, part in sorted(keyed, key=itemgetter(0, 1)))


#: Unicode's default-ignorable characters, and the two that are drawn as nothing without being so.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSEEN_KINDS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?", re.I)


def check_labels(labels: Iterable[str]) -> None:
    """Check that labels can name sources in files, tables and paths on every platform.

    Raises:
        ValueError: a label that is empty, begins with a dot, holds a slash or backslash, "..", white space at an
            end, an invisible or control character or a lone surrogate, or that Windows can't name a file by; or two
            labels that only case or Unicode form part.
    """
    seen: dict[str, str] = {}
    for label in labels:
        fault = _label_fault(label)
        if fault:
            raise ValueError(f"the source label {label!r} {fault}")
        form = _folded(label)
        if form in seen:
            raise ValueError(
                f"the source labels {seen[form]!r} and {label!r} differ only by case or Unicode form; rename one"
            )
        seen[form] = label


def _label_fault(label: str) -> str | None:
    if not label or label != label.strip():
        return "must not be empty or begin or end with white space"
    if label.startswith(".") or ".." in label or "/" in label or "\\" in label:
        return "must not begin with a dot or hold '..', '/' or '\\'"
    if _UNSEEN.search(label) or any(unicodedata.category(character) in _UNSEEN_KINDS for character in label):
        return "holds a control or invisible character"
    if ":" in label or label.endswith(".") or _DEVICE.fullmatch(label):
        return "can't be a file's name on Windows (a colon, a dot at the end, or a device such as CON)"
    return None


def _folded(label: str) -> str:
    return nfc(nfc(label).casefold())

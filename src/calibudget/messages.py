"""Words that follow a number, values as messages tell them, and what is wrong with a field of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

# Characters of a value that a message tells, and of a word in any line for people: an id may have a million.
_MOST_SHOWN: Final = 80
_LONGEST_WORD: Final = 1000


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: "1 record", "2,000 records".

    Words may stand before the noun ("calibration record"); `plural` is for nouns that take no "s".
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown(value: object, form: Callable[[object], str] = repr) -> str:
    """A value for a message, in not too many characters."""
    try:
        text = form(value)
    except ValueError:  # an integer of more digits than Python writes
        text = "a number of thousands of digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def printable(text: str, kept: str = "") -> str:
    """The text with what a terminal would act on, or a reader couldn't see, written out: a file's name draws no line.

    The end of a word of more than 1,000 characters is left out. Characters that are `kept` stay, such as line ends.
    """
    if len(text) > _LONGEST_WORD:
        text = re.sub(r"\S+", _shortened, text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


def _shortened(word: re.Match[str]) -> str:
    return word[0] if len(word[0]) <= _LONGEST_WORD else f"{word[0][: _LONGEST_WORD - 3]}..."


def first_of(names: Sequence[str], most: int = 8) -> str:
    """The first so many of the names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def meant(name: object, known: Iterable[str], most: int = 8) -> str:
    """What an unknown name may have been meant for: the nearest that there is, or so many of them."""
    names = sorted(known)
    nearest = get_close_matches(str(name), names, n=1, cutoff=0.7)  # below, 'precision' means 'epsilon'
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return f"there are {first_of([*map(repr, names)], most)}"


def redacted(text: str) -> str:
    """The text with every credential in it replaced by "[secret]"; the same text where there is none."""
    return _SECRETS.sub("[secret]", text)


#: What gives access: user and password of a URL, signatures and tokens of its query, keys by their known forms.
_SECRETS: Final = re.compile(
    r"(?<=[a-z0-9+.-]{2}:/)/?[^/?#\s'\"@]+@(?=[^\s'\"])"
    r"|(?<=[?&])(?:x-(?:amz|goog)-(?:signature|credential|security-token)|signature|sig|awsaccesskeyid|googleaccessid"
    r"|(?:access_?|auth_?|api_?|security_?)?(?:token|key)|password|secret)=[^&#\s'\"]+"
    r"|\b(?:hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[\w-]{32,})\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----",
    re.IGNORECASE,
)


def fault(kind: str, context: Mapping[str, object]) -> str | None:
    """What is wrong with a field, by the kind of a validation's finding; None for a kind that has no words here.

    `context` holds the numbers that belong to it, pydantic's `ctx`.
    """
    if kind == "value_error":  # a rule of our own, in its own words
        return str(context["error"])
    words = _FAULTS.get(kind)
    return None if words is None else words.format_map(context)


_FAULTS: Final = {
    "bool_type": "must be true or false",
    "dataclass_type": "must be an object",
    "dict_type": "must be an object",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be an integer",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "too_long": "holds {actual_length} and takes {max_length} at most",
    "too_short": "holds {actual_length} and needs {min_length} or more",
    "tuple_type": "must be a list",
    "extra_forbidden": "is not a field of this format",
    "unexpected_keyword_argument": "is not a field of this format",
}

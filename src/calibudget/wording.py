"""Words that follow a number, and values as messages tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Characters of a value that a message tells.
_MOST_SHOWN: Final = 80


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: "1 record", "2,000 records".

    Args:
        number: how many.
        noun: what, in the singular; words may stand before the noun ("calibration record").
        plural: more than one of them, where an "s" doesn't make it.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown(value: object, form: Callable[[object], str] = repr) -> str:
    """A value for a message, in not too many characters."""
    try:
        text = form(value)
    except ValueError:  # an integer of more digits than Python writes
        text = "a number of thousands of digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."

"""Words that follow a number, values as messages tell them, and what is wrong with a field of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def fault(kind: str, context: Mapping[str, object]) -> str | None:
    """What is wrong with a field, by the kind of a validation's finding; None for a kind that has no words here.

    Args:
        kind: pydantic's name of it.
        context: the numbers that belong to it, pydantic's `ctx`.
    """
    words = _FAULTS.get(kind)
    return None if words is None else words.format_map(context)


_FAULTS: Final = {
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be an integer",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "string_type": "must be text",
    "too_long": "holds {actual_length} and takes {max_length} at most",
    "too_short": "holds {actual_length} and needs {min_length} or more",
    "tuple_type": "must be a list",
}

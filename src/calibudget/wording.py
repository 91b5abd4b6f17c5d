"""Words that follow a number."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: "1 record", "2,000 records".

    Args:
        number: how many.
        noun: what, in the singular; words may stand before the noun ("calibration record").
        plural: more than one of them, where an "s" doesn't make it.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"

r"""Reading and comparing numbers: money, thousands, fractions, percentages and units, exactly.

A number compares as the rational that it writes, so 29, 29.0, $29.00 and 58/2 are one number and 0.3333 isn't
1/3. A percentage counts by its figure (50% is 50), a unit by its absence.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibudget.tasks.statements import closed, has_open_box, stated_answers

_DIGITS: Final = r"(?:\d{1,3}(?:,\d{2,3}){0,20},\d{3}(?!\d)|\d+)"
_NUMBER: Final = re.compile(
    rf"""
    (?P<sign>(?<![\w)\]}}%.])[-+]\s?)?
    [$€£¥₹]?\s?
    (?P<inner>(?<=[$€£¥₹])[-+])?
    (?<![\w.\\^])
    (?:
        (?:(?P<whole>\d{{1,6}})\s?)?\\[dtc]?frac\s?\{{\s?(?P<frac_top>-?\d+)\s?\}}\s?\{{\s?(?P<frac_bottom>\d+)\s?\}}
      | (?P<mixed>\d{{1,6}})\ (?P<mixed_top>\d{{1,6}})/(?P<mixed_bottom>\d{{1,6}})(?![\d/])
      | (?P<decimal>{_DIGITS}(?:\.\d+)?|\.\d+)(?:e(?P<exponent>[+-]?\d{{1,3}})(?!\w))?
        (?:\s?/\s?(?P<bottom>\d+(?:\.\d+)?)(?![\d/]))?
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SHORT_FRACTION: Final = re.compile(r"\\[dtc]?frac\s?(\d)\s?(\d)(?!\d)")
#: Longest run of digits read as a number; what is longer is no answer, and Python refuses to convert it.
_MAX_DIGITS: Final = 1000


def parse_number(text: str) -> str | None:
    """The number that a plain text gives as its answer, in `canonical_number` form; None if it gives none.

    The last stated answer that holds a number wins; without one, the last number of the text, unless a box was
    left open.
    """
    text = closed(without_spacing(text))
    for stated in stated_answers(text):
        value = _first_value(stated)
        if value is not None:
            return canonical_number(value)
    value = None if has_open_box(text) else _last_value(text)
    return None if value is None else canonical_number(value)


def without_spacing(text: str) -> str:
    """A plain text without what LaTeX puts into numbers: spacing, braced commas, bare fractions, escaped dollars."""
    text = text.replace("{,}", ",").replace("\\$", "$").replace("\\,", "").replace("\\!", "")
    return _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)


def number_value(text: str) -> Fraction | None:
    """The rational that a text writes if the text is nothing but one number with its money sign, unit or percent."""
    text = without_spacing(text).strip().rstrip(".").replace("\\%", "%").strip("$ ")
    match = _NUMBER.fullmatch(text.removesuffix("%").strip())
    return _value(match) if match else None


def canonical_number(value: Fraction) -> str:
    """A rational as an integer, a finite decimal or, where neither can be, a fraction in lowest terms."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _first_value(stated: str) -> Fraction | None:
    """The number that a statement gives: behind its last "=" if it shows the sum, else its first."""
    for part in (stated.rpartition("=")[2], stated):
        for match in _NUMBER.finditer(part):
            value = _value(match)
            if value is not None:
                return value
    return None


def _last_value(text: str) -> Fraction | None:
    for match in reversed(list(_NUMBER.finditer(text))):
        value = _value(match)
        if value is not None:
            return value
    return None


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > _MAX_DIGITS:
        return None
    try:
        value = _magnitude(match)
    except ZeroDivisionError:
        return None
    signs = (match["sign"] or "") + (match["inner"] or "")
    return -value if signs.count("-") == 1 else value


def _magnitude(match: re.Match[str]) -> Fraction:
    if match["frac_top"]:
        return int(match["whole"] or 0) + Fraction(int(match["frac_top"]), int(match["frac_bottom"]))
    if match["mixed"]:
        return int(match["mixed"]) + Fraction(int(match["mixed_top"]), int(match["mixed_bottom"]))
    value = Fraction(match["decimal"].replace(",", "")) * Fraction(10) ** int(match["exponent"] or 0)
    return value / Fraction(match["bottom"]) if match["bottom"] else value

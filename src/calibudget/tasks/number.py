r"""Reading numbers: money, thousands, fractions, percentages and units, exactly.

A number compares as the rational that it writes, so 29, 29.0, $29.00 and 58/2 are one number and 0.3333 isn't
1/3. A percentage counts by its figure (50% is 50), a unit by its absence.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from calibudget.tasks.answer_phrases import ENGLISH, LANGUAGES, any_of
from calibudget.tasks.plain_text import closed, has_open_box, stated_answers

_DIGITS: Final = r"(?:\d{1,3}(?:,\d{2,3}){0,20},\d{3}(?!\d)|\d+)"
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
#: Digits that write no number: times, dates and versions.
_NO_NUMBER: Final = re.compile(
    rf"(?<![\w.:/-])(?:\d{{1,2}}(?::[0-5]\d){{1,2}}(?:[ap]m)?|\d{{1,2}}\s?[ap]\.?m\b"
    rf"|\d{{4}}([-/.]){_DAY}\1{_DAY}|{_DAY}([-/.]){_DAY}\2(?:\d{{4}}|\d\d)|\d+(?:\.\d+){{2,}})(?![\w:/]|[.-]\d)",
    re.IGNORECASE,
)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec)[a-z]{0,6}"
#: A day of a month.
_DATE: Final = re.compile(rf"\b{_MONTH}\.? \d|\d(?:st|nd|rd|th)?(?: of)? {_MONTH}\b", re.IGNORECASE)
#: The exponent of a unit ("m^2", "cm3"), which is no number of its own.
_UNIT_POWER: Final = re.compile(r"(?<=[a-z])\^?\{?[23]\b\}?", re.IGNORECASE)
#: A price as most of Europe writes it: 1.299,00 with the euro's sign before or after.
_EURO: Final = r"(?:\d{1,3}(?:\.\d{3})+|\d+),\d{1,2}(?!\d)"
_EUROS: Final = re.compile(rf"(?<=€)\s?{_EURO}|(?<=EUR)\s?{_EURO}|(?<![\d.,]){_EURO}(?=\s?(?:€|EUR\b|euros?\b))", re.I)
#: A decimal comma behind groups of thousands, or behind more digits than stand before a comma of thousands.
_DECIMAL_COMMA: Final = re.compile(
    r"(?<![\w.,])(?:[1-9]\d{0,2}(?:\.\d{3})+,\d+|(?:[1-9]\d{0,2}(?: \d{3})+|[1-9]\d{3,}),\d{1,2})(?!\d|[.,]\d)"
)
#: Fractions of one character, with the whole number before them.
_VULGAR: Final = re.compile(r"(\d ?)?([\u00bc-\u00be\u2150-\u215e\u2189])")
#: What makes digits of a gold field a part of something else: "B-52", "10x", "5k", "2pi", "minus 5", "3 million",
#: "x > 5"; a unit's letter does not.
_NAMED: Final = re.compile(
    r"[^\W\d_]-(?=\d)|(?<=\d)[a-zA-Z](?<![mglLshWVJ])(?!\w)|(?<=\d) ?\\?(?:pi\b|\u03c0)"
    r"|(?i:\b(?:minus|negative) (?=[$\d])|(?<=\d) (?:hundred|thousand|[mb]illion|trillion|dozen)\b)"
    r"|[<>\u2264\u2265]=? ?(?=[$\d])|(?<=\d) ?[<>\u2264\u2265]"
)
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED: Final = re.compile(r"(?<=10)[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}")
_NUMBER: Final = re.compile(
    rf"""
    (?P<sign>(?<![\w)\]}}%.])[-+]\s?)?
    [$€£¥₹]?\s?
    (?P<inner>(?<=[$€£¥₹])[-+])?
    (?<![\w.\\^])
    (?:
        (?:(?P<whole>\d{{1,6}})\s?)?\\[dtc]?frac\s?\{{\s?(?P<frac_top>-?\d+)\s?\}}\s?\{{\s?(?P<frac_bottom>\d+)\s?\}}
      | (?P<mixed>\d{{1,6}})\ (?P<mixed_top>\d{{1,6}})/(?P<mixed_bottom>\d{{1,6}})(?![\d/])
      | (?P<power>10\s?\^\s?(?:\{{\s?(?P<raised>[+-]?\d{{1,3}})\s?\}}|(?P<up>[+-]?\d{{1,3}})(?!\d)))
      | (?P<decimal>{_DIGITS}(?:\.\d+)?|\.\d+)
        (?:e(?P<exponent>[+-]?\d{{1,3}})(?!\w)
          |\s?(?:[x*·\u00d7]|\\times|\\cdot)\s?10\s?\^\s?(?:\{{\s?(?P<ten>[+-]?\d{{1,3}})\s?\}}|(?P<tens>[+-]?\d{{1,3}})(?!\d)))?
        (?:\s?/\s?(?P<bottom>\d+(?:\.\d+)?)(?![\d/]))?
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OR: Final = any_of("|".join(phrases.or_ for phrases in (ENGLISH, *LANGUAGES.values()) if phrases.or_))
_AND: Final = any_of("|".join(phrases.and_ for phrases in (ENGLISH, *LANGUAGES.values()) if phrases.and_))
#: What stands between two numbers of which none is chosen, and what stands before two that are bounds.
_OTHERWISE: Final = re.compile(
    rf"[%$]?\s{{0,3}}(?:\\text\{{\s?)?{_OR}\s?\}}?\s{{0,3}}(?:\$?[a-z]\s?=\s?)?", re.IGNORECASE
)
_ALSO: Final = re.compile(rf"[%$]?\s{{0,3}}{_AND}\s{{0,3}}", re.IGNORECASE)
_BETWEEN: Final = re.compile(
    r"\b(?:between|zwischen|entre|tra|fra|\u043c\u0435\u0436\u0434\u0443)\s{0,3}\Z", re.IGNORECASE
)
_SHORT_FRACTION: Final = re.compile(r"\\[dtc]?frac\s?(\d)\s?(\d)(?!\d)")
#: Longest run of digits read as a number; what is longer is no answer, and Python refuses to convert it.
_MAX_DIGITS: Final = 1000


def parse_number(text: str) -> str | None:
    """The number that a plain text gives as its answer, in `canonical_number` form; None if it gives none.

    The last stated answer that holds a number wins; without one, the last number of the text, unless a box was
    left open. Where that number is one of two ("2 or 3", "between 3 and 5"), the text gives none.
    """
    text = closed(without_spacing(text))
    for stated in stated_answers(text):
        number = _first_number(stated)
        if number is not None:
            return _chosen(stated, number)
    numbers = [] if has_open_box(text) else list(_numbers(text))
    number = next((match for match in reversed(numbers) if _value(match) is not None), None)
    return None if number is None else _chosen(text, number)


def without_spacing(text: str) -> str:
    """A plain text whose numbers are written one way.

    Without LaTeX's spacing, braced commas, bare fractions and escaped dollars; with decimals parted by a point,
    fractions by a "/", and powers of ten raised by a "^".
    """
    text = text.replace("{,}", ",").replace("\\$", "$").replace("\\,", "").replace("\\!", "")
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = text.replace("\u2044", "/")
    text = _VULGAR.sub(_written_out, text)
    for pattern in (_EUROS, _DECIMAL_COMMA):
        text = pattern.sub(_with_point, text)
    return _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPTS), text)


def _with_point(match: re.Match[str]) -> str:
    spaces = len(match[0]) - len(match[0].lstrip())
    return match[0][:spaces] + match[0][spaces:].replace(".", "").replace(" ", "").replace(",", ".")


def _written_out(match: re.Match[str]) -> str:
    fraction = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    return f"{match[1].rstrip()} {fraction}" if match[1] else fraction


def sole_number(text: str) -> str | None:
    """The number that a plain text writes, in `canonical_number` form, if it is one number and not a time or a date.

    A statement ("#### 18") says which of several it is.
    """
    text = closed(without_spacing(text))
    part = next(iter(stated_answers(text)), text)
    matches = list(_NUMBER.finditer(part))
    rest = _UNIT_POWER.sub("", _NUMBER.sub(" ", part))
    if (
        len(matches) != 1
        or _NAMED.search(part)
        or _NO_NUMBER.search(part)
        or _DATE.search(part)
        or re.search(r"\d", rest)
    ):
        return None
    value = _value(matches[0])
    return None if value is None else canonical_number(value)


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


def _first_number(stated: str) -> re.Match[str] | None:
    """The number that a statement gives: behind its last "=" if it shows the sum, else its first."""
    numbers = [match for match in _numbers(stated) if _value(match) is not None]
    behind = stated.rfind("=") + 1
    return next((match for match in numbers if match.start() >= behind), next(iter(numbers), None))


def _chosen(text: str, number: re.Match[str]) -> str | None:
    """A number of the text in canonical form; None if it is one of two numbers that differ."""
    value = _value(number)
    numbers = list(_numbers(text))
    for first, second in itertools.pairwise(numbers):
        if number.start() in (first.start(), second.start()) and _value(first) != _value(second):
            joint = text[first.end() : second.start()]
            bounds = _ALSO.fullmatch(joint) and _BETWEEN.search(text, max(0, first.start() - 20), first.start())
            if bounds or _OTHERWISE.fullmatch(joint):
                return None
    return None if value is None else canonical_number(value)


def _numbers(text: str) -> Iterator[re.Match[str]]:
    """The numbers of a text; times, dates and versions are none."""
    return _NUMBER.finditer(_NO_NUMBER.sub(lambda match: "_" * len(match[0]), text))


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
    if match["power"]:
        return Fraction(10) ** int(match["raised"] or match["up"])
    exponent = match["exponent"] or match["ten"] or match["tens"] or 0
    value = Fraction(match["decimal"].replace(",", "")) * Fraction(10) ** int(exponent)
    return value / Fraction(match["bottom"]) if match["bottom"] else value

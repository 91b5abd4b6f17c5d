"""Numbers taken exactly as they are given: counts as Python integers, utilities as ratios of integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from calibudget.errors import AllocationError, InputTypeError

#: A number whose exact value counts: a float means the rational that it holds.
Real: TypeAlias = int | float | Fraction | Decimal | np.integer | np.floating

_PLAIN: Final = frozenset({int, float})


def as_count(value: object, name: str, label: str | None = None) -> int:
    """A budget, floor, cap or pool size as a Python integer.

    Args:
        value: an integer of Python or numpy, >= 0. A float is refused even when it is whole: a count that went
            through a float may already have lost its last digits.
        name: what the number is, for the message.
        label: the source that it belongs to, for the message.

    Raises:
        InputTypeError: a bool, a float, a fraction or anything else that isn't an integer.
        AllocationError: a negative integer.
    """
    try:
        integer = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        integer = None
    if integer is None or isinstance(value, bool):
        kind = type(value).__name__
        raise InputTypeError(f"{_named(name, label)} must be an integer, not {value!r} ({kind})")
    if integer < 0:
        raise AllocationError(f"{_named(name, label)} must not be negative, but is {integer}")
    return integer


def as_counts(values: Sequence[object], name: str, labels: Sequence[str]) -> list[int]:
    """`as_count` of each source's value, shape (K,)."""
    integers = [value for value in values if type(value) is int and value >= 0]
    if len(integers) == len(values):
        return integers
    return [as_count(value, name, label) for value, label in zip(values, labels, strict=True)]


def as_ratio(value: object, name: str, label: str | None = None) -> tuple[int, int]:
    """A finite nonnegative real number as (numerator, denominator), nothing rounded.

    Raises:
        InputTypeError: a bool, a text or anything else that isn't a real number.
        AllocationError: negative, infinite or not a number.
    """
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        kind = type(value).__name__
        raise InputTypeError(f"{_named(name, label)} must be a real number, not {value!r} ({kind})")
    number = int(value) if isinstance(value, np.integer) else value
    try:
        ratio = number.as_integer_ratio()
    except (ValueError, OverflowError):
        raise AllocationError(f"{_named(name, label)} must be finite, but is {value}") from None
    if ratio[0] < 0:
        raise AllocationError(f"{_named(name, label)} must not be negative, but is {value}")
    return ratio


def lowest_count(value: object, name: str, label: str | None = None) -> int:
    """The smallest integer that satisfies a real lower bound."""
    numerator, denominator = as_ratio(value, name, label)
    return -(-numerator // denominator)


def highest_count(value: object, name: str, label: str | None = None) -> int:
    """The largest integer that satisfies a real upper bound."""
    numerator, denominator = as_ratio(value, name, label)
    return numerator // denominator


def integer_weights(utilities: Sequence[object], labels: Sequence[str]) -> list[int]:
    """The utilities over one common denominator, as integers in the same proportions (shape (K,)).

    Raises:
        InputTypeError, AllocationError: as `as_ratio`, naming the source.
    """
    ratios = _plain_ratios(utilities)
    if ratios is None:
        ratios = [as_ratio(value, "the utility", label) for value, label in zip(utilities, labels, strict=True)]
    common = math.lcm(*[denominator for _, denominator in ratios])
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _plain_ratios(values: Sequence[object]) -> list[tuple[int, int]] | None:
    """`as_ratio` of floats and ints without anything wrong, which is the usual case; None for all others."""
    if not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        ratios = [value.as_integer_ratio() for value in values]  # type: ignore[attr-defined]
    except (ValueError, OverflowError):
        return None
    return None if min(ratios, default=(0, 1))[0] < 0 else ratios


def nearest_double(numerator: int, denominator: int) -> float:
    """The correctly rounded quotient of two integers; infinite beyond the range of doubles."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf


def _named(name: str, label: str | None) -> str:
    return name if label is None else f"{name} of {label!r}"

"""Numbers taken exactly as they are given: counts as Python integers, utilities as ratios of integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import shown

#: A number whose exact value counts: a float means the rational that it holds.
Real: TypeAlias = int | float | Fraction | Decimal | np.integer | np.floating
_PLAIN: Final = frozenset({int, float})
# Binary digits of a double.
_DIGITS: Final = 53
# Sums of as large counts as these can still be told: Python writes integers of up to 4,300 digits.
_MOST_DIGITS: Final = 4000
_BEYOND_COUNTS: Final = 10**_MOST_DIGITS


def as_count(value: object, name: str, label: str | None = None) -> int:
    """A budget, floor, cap or pool size as a Python integer, for messages by its name and its source's label.

    A float is refused even when it is whole: a count that went through a float may already have lost its last digits.

    Raises:
        InputTypeError: a bool, a float, a fraction or anything else that isn't an integer of Python or numpy.
        AllocationError: a negative integer, or one of more than 4,000 digits.
    """
    try:
        integer = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        integer = None
    if integer is None or isinstance(value, bool):
        raise InputTypeError(f"{_named(name, label)} must be an integer, not {_described(value)}")
    if integer < 0:
        raise AllocationError(f"{_named(name, label)} must not be negative, but is {shown(integer)}")
    return _tellable(integer, name, label)


def as_counts(
    values: Sequence[object], name: str, labels: Sequence[str], one: Callable[[object, str, str], int] = as_count
) -> list[int]:
    """`as_count`, or another reading that leaves counts as they are, of each source's value, shape (K,)."""
    integers = [value for value in values if type(value) is int and 0 <= value < _BEYOND_COUNTS]
    if len(integers) == len(values):
        return integers
    return [one(value, name, label) for value, label in zip(values, labels, strict=True)]


def count_within_doubles(value: object, name: str, label: str) -> int:
    """`as_count` of a count that enters a number in doubles.

    Raises:
        InputTypeError, AllocationError: as `as_count`; also a count too large for a double.
    """
    count = as_count(value, name, label)
    as_double(count, name, label)
    return count


def as_double(value: object, name: str, label: str | None = None, *, least: float = -math.inf) -> float:
    """A finite int or float as a double.

    Raises:
        InputTypeError: a bool, a text or anything else that is neither an int nor a float.
        AllocationError: infinite, not a number, too large for a double, or below the least.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputTypeError(f"{_named(name, label)} must be a number, not {_described(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise AllocationError(f"{_named(name, label)} is {shown(value)}, too large for a double") from None
    if not math.isfinite(number):
        raise AllocationError(f"{_named(name, label)} must be finite, but is {number}")
    if number < least:
        raise AllocationError(f"{_named(name, label)} must not be negative, but is {number}")
    return number


def as_doubles(values: object, name: str, label: str | None = None) -> list[float]:
    """`as_double` of each number of a sequence; an array will do."""
    given = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InputTypeError(f"{_named(name, label)} must be a sequence of numbers, not {_described(values)}")
    if set(map(type, given)) <= {float} and all(map(math.isfinite, given)):
        return list(given)
    return [as_double(value, f"{name}[{place}]", label) for place, value in enumerate(given)]


def mean_of(values: Sequence[float], name: str) -> float:
    """The mean of at least one number, from `sum_of` them."""
    return sum_of(values, name) / len(values)


def sum_of(values: Sequence[float], name: str) -> float:
    """The exact sum of numbers, rounded once.

    Raises:
        AllocationError: the sum is more than the largest double.
    """
    try:
        return math.fsum(values)
    except OverflowError:
        worst = max(values, key=abs)
        raise AllocationError(f"{name} sum to more than the largest double; the largest is {worst:g}") from None


def as_weight(value: object, name: str, label: str) -> float:
    """A nonnegative real number as the nearest double, 0 only where it is 0.

    Raises:
        InputTypeError, AllocationError: as `as_ratio`; also a number that no double is near.
    """
    numerator, denominator = as_ratio(value, name, label)
    nearest = nearest_double(numerator, denominator)
    if nearest == math.inf or (numerator and not nearest):
        size = "large" if nearest else "small"
        raise AllocationError(f"{_named(name, label)} is {shown(value, str)}, too {size} for a double")
    return nearest


def as_ratio(value: object, name: str, label: str | None = None) -> tuple[int, int]:
    """A finite nonnegative real number as (numerator, denominator), nothing rounded.

    Raises:
        InputTypeError: a bool, a text or anything else that isn't a real number.
        AllocationError: negative, infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{_named(name, label)} must be a real number, not {_described(value)}")
    number = int(value) if isinstance(value, np.integer) else value
    try:
        ratio = number.as_integer_ratio()
    except (ValueError, OverflowError):
        raise AllocationError(f"{_named(name, label)} must be finite, but is {value}") from None
    if ratio[0] < 0:
        raise AllocationError(f"{_named(name, label)} must not be negative, but is {shown(value, str)}")
    return ratio


def lowest_count(value: object, name: str, label: str | None = None) -> int:
    """The smallest integer that satisfies a real lower bound."""
    numerator, denominator = as_ratio(value, name, label)
    return _tellable(-(-numerator // denominator), name, label)


def highest_count(value: object, name: str, label: str | None = None) -> int:
    """The largest integer that satisfies a real upper bound."""
    numerator, denominator = as_ratio(value, name, label)
    return _tellable(numerator // denominator, name, label)


def integer_weights(utilities: Sequence[object], labels: Sequence[str]) -> list[int]:
    """The utilities over one common denominator, as integers in the same proportions (shape (K,)).

    Raises:
        InputTypeError, AllocationError: as `as_ratio`, naming the source.
    """
    scaled = _scaled(utilities)
    if scaled is not None:
        return scaled
    ratios = _plain_ratios(utilities)
    if ratios is None:
        ratios = [as_ratio(value, "the utility", label) for value, label in zip(utilities, labels, strict=True)]
    common = math.lcm(*[denominator for _, denominator in ratios])
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _scaled(values: Sequence[object]) -> list[int] | None:
    """Positive doubles times the power of two that leaves none a fraction, the usual case; None for all others."""
    least = min(values) if {float}.issuperset(map(type, values)) and values else 0.0  # type: ignore[type-var]
    if not least > 0.0:  # type: ignore[operator]
        return None
    try:
        scale = math.ldexp(1.0, _DIGITS - math.frexp(least)[1])  # type: ignore[arg-type]
        return [int(value * scale) for value in values]  # type: ignore[operator]
    except (ValueError, OverflowError):
        return None


def _plain_ratios(values: Sequence[object]) -> list[tuple[int, int]] | None:
    """`as_ratio` of floats and ints without anything wrong; None for all others."""
    if not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        ratios = [value.as_integer_ratio() for value in values]  # type: ignore[attr-defined]
    except (ValueError, OverflowError):
        return None
    return None if any(numerator < 0 for numerator, _ in ratios) else ratios


def nearest_double(numerator: int, denominator: int) -> float:
    """The correctly rounded quotient of two integers; infinite beyond the range of doubles."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf


def _described(value: object) -> str:
    return f"{shown(value)} ({type(value).__name__})"


def _tellable(integer: int, name: str, label: str | None) -> int:
    if integer >= _BEYOND_COUNTS:
        raise AllocationError(f"{_named(name, label)} has more than {_MOST_DIGITS:,} digits: count in a larger unit")
    return integer


def _named(name: str, label: str | None) -> str:
    return name if label is None else f"{name} of {label!r}"

"""Numbers taken exactly as they are given: counts as Python integers, utilities as ratios of integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from calibudget.errors import AllocationError, InputTypeError

#: A number whose exact value counts: a float means the rational that it holds.
Real: TypeAlias = int | float | Fraction | Decimal | np.integer | np.floating


def as_count(value: object, name: str) -> int:
    """A budget, floor, cap or pool size as a Python integer.

    Args:
        value: an integer of Python or numpy, >= 0. A float is refused even when it is whole: a count that went
            through a float may already have lost its last digits.
        name: what the number is, for the message.

    Raises:
        InputTypeError: a bool, a float, a fraction or anything else that isn't an integer.
        AllocationError: a negative integer.
    """
    if type(value) is int:
        integer = value
    else:
        if isinstance(value, bool):
            raise InputTypeError(f"{name} must be an integer, not the bool {value}")
        try:
            integer = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise InputTypeError(f"{name} must be an integer, not {value!r} ({type(value).__name__})") from None
    if integer < 0:
        raise AllocationError(f"{name} must not be negative, but is {integer}")
    return integer


def as_ratio(value: object, name: str) -> tuple[int, int]:
    """A finite nonnegative real number as (numerator, denominator), nothing rounded.

    Raises:
        InputTypeError: a bool, a text or anything else that isn't a real number.
        AllocationError: negative, infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name} must be a real number, not {value!r} ({type(value).__name__})")
    if isinstance(value, np.integer):
        value = int(value)
    try:
        numerator, denominator = value.as_integer_ratio()
    except (ValueError, OverflowError):
        raise AllocationError(f"{name} must be finite, but is {value}") from None
    if numerator < 0:
        raise AllocationError(f"{name} must not be negative, but is {value}")
    return numerator, denominator


def lowest_count(value: object, name: str) -> int:
    """The smallest integer that satisfies a real lower bound."""
    numerator, denominator = as_ratio(value, name)
    return -(-numerator // denominator)


def highest_count(value: object, name: str) -> int:
    """The largest integer that satisfies a real upper bound."""
    numerator, denominator = as_ratio(value, name)
    return numerator // denominator


def integer_weights(utilities: Iterable[object], labels: Sequence[str]) -> list[int]:
    """The utilities over one common denominator, as integers in the same proportions (shape (K,)).

    Raises:
        InputTypeError, AllocationError: as `as_ratio`, naming the source.
    """
    ratios = [as_ratio(value, f"the utility of {label!r}") for label, value in zip(labels, utilities, strict=True)]
    common = math.lcm(*(denominator for _, denominator in ratios))
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def nearest_double(numerator: int, denominator: int) -> float:
    """The correctly rounded quotient of two integers; infinite beyond the range of doubles."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf

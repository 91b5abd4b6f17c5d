"""Counts and real numbers are taken exactly, or refused with their name."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from calibudget.allocation.exact import numbers
from calibudget.allocation.exact.numbers import (
    as_count,
    as_counts,
    as_double,
    as_doubles,
    as_ratio,
    as_weight,
    highest_count,
    integer_weights,
    lowest_count,
)
from calibudget.errors import AllocationError, InputTypeError


def test_integers_of_python_and_numpy_are_counts(subtests: pytest.Subtests) -> None:
    for value in [0, 7, 10**30, np.int64(7), np.uint8(3)]:
        with subtests.test(value=value):
            assert as_count(value, "the budget") == value
            assert type(as_count(value, "the budget")) is int


def test_nothing_else_is_a_count(subtests: pytest.Subtests) -> None:
    for value in [True, False, np.True_, 3.0, 2.5, "3", None, Fraction(3), Decimal(3), np.float64(3)]:
        with (
            subtests.test(value=value),
            pytest.raises(InputTypeError, match="the budget must be an integer, not"),
        ):
            as_count(value, "the budget")


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(AllocationError, match=r"^the floor of 'a' must not be negative, but is -1$"):
        as_count(-1, "the floor", "a")


def test_real_numbers_are_exact_ratios(subtests: pytest.Subtests) -> None:
    for value, ratio in [
        (3, (3, 1)),
        (0.5, (1, 2)),
        (0.1, (3602879701896397, 2**55)),
        (Fraction(2, 6), (1, 3)),
        (Decimal("0.30"), (3, 10)),
        (np.int32(4), (4, 1)),
        (np.float32(0.25), (1, 4)),
        (np.float64(1.5), (3, 2)),
        (-0.0, (0, 1)),
        (5e-324, (1, 2**1074)),
    ]:
        with subtests.test(value=value):
            assert as_ratio(value, "the utility") == ratio


def test_what_is_no_real_number_is_refused(subtests: pytest.Subtests) -> None:
    for value in [True, "1", None, 1j, [1]]:
        with subtests.test(value=value):
            message = f"the utility of 'a' must be a real number, not {value!r} ({type(value).__name__})"
            with pytest.raises(InputTypeError, match=f"^{re.escape(message)}$"):
                as_ratio(value, "the utility", "a")


def test_what_is_not_finite_is_refused(subtests: pytest.Subtests) -> None:
    for value in [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("Infinity")]:
        with (
            subtests.test(value=value),
            pytest.raises(AllocationError, match="the utility of 'a' must be finite, but is"),
        ):
            as_ratio(value, "the utility", "a")


def test_what_is_negative_is_refused(subtests: pytest.Subtests) -> None:
    for value in [-1, -1e-300, Fraction(-1, 3), Decimal("-0.5"), np.int64(-2)]:
        with (
            subtests.test(value=value),
            pytest.raises(AllocationError, match="the utility must not be negative, but is"),
        ):
            as_ratio(value, "the utility")


def test_real_bounds_are_rounded_inwards(subtests: pytest.Subtests) -> None:
    for value, low, high in [(2, 2, 2), (2.5, 3, 2), (Fraction(-0), 0, 0), (Fraction(7, 3), 3, 2)]:
        with subtests.test(value=value):
            assert lowest_count(value, "the bound") == low
            assert highest_count(value, "the bound") == high


def test_bounds_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(AllocationError, match="the bound of 'a' must not be negative"):
        lowest_count(-0.5, "the bound", "a")
    with pytest.raises(InputTypeError, match="the bound of 'a' must be a real number"):
        highest_count(None, "the bound", "a")


def test_weights_keep_the_proportions_over_the_least_common_denominator() -> None:
    assert integer_weights([1, 0.5, Fraction(1, 3)], "abc") == [6, 3, 2]
    assert integer_weights([Decimal("0.1"), 0], "ab") == [1, 0]
    assert integer_weights([], "") == []
    with pytest.raises(InputTypeError, match="the utility of 'b' must be a real number, not 'x'"):
        integer_weights([1, "x"], "ab")


@pytest.mark.parametrize(
    "values",
    [
        [0.1, 0.3, 7.25],
        [2.0**-969, 1.0, 2.0**-968.5],
        [2.0**-971, 1.0],
        [5e-324, 1.0],
        [1e-300, 1e300],
        [1.7e308, 1.5, 2.0**971],
        [0.0, 0.1],
    ],
)
def test_weights_of_doubles_are_exact(values: list[float]) -> None:
    weights = integer_weights(values, "abc")
    assert [Fraction(weight, max(weights)) for weight in weights] == [
        Fraction(v) / Fraction(max(values)) for v in values
    ]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.5])
def test_doubles_that_are_no_weights_are_refused_wherever_they_stand(wrong: float) -> None:
    for values in ([wrong, 0.5], [0.5, wrong], [wrong]):
        with pytest.raises(AllocationError, match=f"the utility of '{'ab'[values.index(wrong)]}' must"):
            integer_weights(values, "ab"[: len(values)])


def test_counts_that_could_not_be_told_are_refused() -> None:
    assert as_count(10**4000 - 1, "the budget") == 10**4000 - 1
    with pytest.raises(AllocationError, match=r"^the budget has more than 4,000 digits: count in a larger unit$"):
        as_count(10**4000, "the budget")
    with pytest.raises(AllocationError, match="the pool size of 'b' has more than 4,000 digits"):
        as_counts([1, 10**4000], "the pool size", ["a", "b"])
    for bound in (lowest_count, highest_count):
        with pytest.raises(AllocationError, match="the bound of 'a' has more than 4,000 digits"):
            bound(Fraction(10**5000, 3), "the bound", "a")
    with pytest.raises(
        AllocationError, match="the budget must not be negative, but is a number of thousands of digits"
    ):
        as_count(-(10**5000), "the budget")


def test_doubles_are_finite_numbers() -> None:
    assert [as_double(value, "x") for value in (3, -0.5, np.float64(0.1))] == [3.0, -0.5, 0.1]
    assert as_doubles((1, 2.5), "x") == as_doubles(np.array([1.0, 2.5]), "x") == [1.0, 2.5]
    for wrong in (True, "1", None, Fraction(1, 2), np.float32(1)):
        with pytest.raises(InputTypeError, match="x of 'a' must be a number, not "):
            as_double(wrong, "x", "a")
    with pytest.raises(AllocationError, match=r"^x\[1\] of 'a' must be finite, but is inf$"):
        as_doubles([0.0, math.inf], "x", "a")
    with pytest.raises(AllocationError, match=r"^x is 10+[.]{3}, too large for a double$"):
        as_double(10**400, "x")
    with pytest.raises(AllocationError, match=r"^x must not be negative, but is -0\.5$"):
        as_double(-0.5, "x", least=0)
    for wrong in ("12", b"12", 5, {1.0}):  # type: ignore[assignment]
        with pytest.raises(InputTypeError, match=r"^x must be a sequence of numbers, not "):
            as_doubles(wrong, "x")


def test_weights_are_the_nearest_doubles() -> None:
    assert as_weight(Fraction(1, 3), "w", "a") == 1 / 3
    assert as_weight(Decimal("1e-320"), "w", "a") == 1e-320
    assert as_weight(0, "w", "a") == 0.0
    for text, size in (("1E-400", "small"), ("1E+400", "large")):
        with pytest.raises(AllocationError, match=re.escape(f"w of 'a' is {text}, too {size} for a double")):
            as_weight(Decimal(text), "w", "a")
    with pytest.raises(AllocationError, match=r"^w of 'a' must not be negative, but is -0\.5$"):
        as_weight(np.float32(-0.5), "w", "a")


def test_plain_numbers_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: object) -> None:
        raise AssertionError("these need no look at each")

    for name in ("as_count", "as_double", "as_ratio"):
        monkeypatch.setattr(numbers, name, forbidden)
    assert as_counts([0, 1, 7], "n", "abc") == [0, 1, 7]
    assert as_doubles([], "n") == []
    assert as_doubles([0.5, 1.5], "n") == [0.5, 1.5]
    assert integer_weights([0, 0.5, 2], "abc") == [0, 1, 4]

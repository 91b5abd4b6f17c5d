"""The array form: what it accepts and refuses."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibudget.allocation import arrays
from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.exact.doubles import LARGEST_BUDGET
from calibudget.allocation.quotas import apportion
from calibudget.errors import AllocationError, InputTypeError


def test_arrays_of_all_kinds_of_numbers(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        [3.0, 2.0, 1.0],
        np.array([3, 2, 1], dtype=np.uint8),
        np.array([3, 2, 1], dtype=np.float16),
        np.array([0.75, 0.5, 0.25], dtype=np.float32),
        np.array([3 * 2**60, 2**61, 2**60]),
        np.array([3 * 2**60 + 1, 2**61, 2**60]),
        np.array([Fraction(3, 7), Fraction(2, 7), Fraction(1, 7)], dtype=object),
        np.array([Decimal("0.3"), Decimal("0.2"), Decimal("0.1")], dtype=object),
    ]
    for utilities in cases:
        with subtests.test(utilities=utilities):
            made = apportion_arrays(utilities, 3)
            assert made.quotas.tolist() == [2, 1, 0]
            assert made.quotas.dtype == np.int64
            assert made.shares().tolist() == pytest.approx([1.5, 1.0, 0.5])


def test_large_integers_are_not_rounded_to_doubles() -> None:
    assert apportion_arrays(np.array([2**53, 2**53 + 1]), 1).quotas.tolist() == [0, 1]
    assert apportion_arrays(np.array([2**53, 2**53]), 1).quotas.tolist() == [1, 0]
    assert apportion_arrays(np.array([2**53 - 1, 2**53]), 1).quotas.tolist() == [0, 1]


@pytest.mark.parametrize("budget", [LARGEST_BUDGET, LARGEST_BUDGET + 1, 2**63 - 1])
def test_budgets_beyond_the_filter_go_by_integers(budget: Any) -> None:
    utilities = [0.1, 0.2, 0.7]
    expected = apportion(dict(zip("abc", map(Fraction, utilities), strict=True)), budget)
    made = apportion_arrays(utilities, budget)
    assert made.quotas.tolist() == list(expected.quotas.values())
    assert made.shares().tolist() == list(expected.shares.values())


def test_labels_settle_ties_only() -> None:
    even = np.ones(5)
    assert apportion_arrays(even, 7).quotas.tolist() == [2, 2, 1, 1, 1]
    assert apportion_arrays(even, 7, labels=["e", "d", "c", "b", "a"]).quotas.tolist() == [1, 1, 1, 2, 2]
    assert apportion_arrays(even, 7, labels=np.array(["b", "z", "a", "c", "d"])).quotas.tolist() == [2, 1, 2, 1, 1]  # type: ignore[arg-type]
    uneven = np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    assert apportion_arrays(uneven, 7, labels=list("edcba")).quotas.tolist() == [1, 1, 3, 1, 1]
    upper = np.array([9, 0, 9, 9, 9])
    assert apportion_arrays(even, 6, upper=upper, labels=list("edcba")).quotas.tolist() == [1, 0, 1, 2, 2]


def test_labels_settle_ties_of_exact_numbers_too() -> None:
    thirds = np.array([Fraction(1, 3)] * 3, dtype=object)
    assert apportion_arrays(thirds, 4, labels=["c", "a", "b"]).quotas.tolist() == [1, 2, 1]
    assert apportion_arrays(thirds, 5).quotas.tolist() == [2, 2, 1]
    made = apportion_arrays(thirds, 4, labels=["c", "a", "b"], upper=[0, 9, 9], lower=[0, 0, 3])
    assert made.quotas.tolist() == [0, 1, 3]
    assert made.shares().tolist() == [0.0, 1.0, 3.0]


def test_refusals_name_the_source_and_the_numbers(subtests: pytest.Subtests) -> None:
    for arguments, message in [
        ({"utilities": [1.0, -1.0], "labels": ["x", "y"]}, "the utility of 'y' must not be negative, but is -1.0"),
        ({"utilities": [math.nan, 1.0]}, "the utility of source 0 must be finite, but is nan"),
        ({"lower": [0, -1]}, "the lower bound of source 1 must not be negative, but is -1"),
        ({"lower": [0, 6]}, "the lower bounds come to 6, 1 above the budget 5"),
        ({"lower": [1, 3], "upper": [9, 2]}, "the lower bound of source 1 is 3 and its upper bound only 2"),
        ({"upper": [1, 3]}, "the upper bounds come to 4, 1 short of the budget 5"),
        ({"labels": ["a"]}, "labels must be as many as utilities (2), not 1"),
        ({"budget": -5}, "the budget must not be negative, but is -5"),
        ({"budget": 2**63}, "the budget 9,223,372,036,854,775,808 doesn't fit 64-bit integers: use apportion"),
    ]:
        with subtests.test(arguments=arguments, message=message):
            inputs: dict[str, Any] = {"utilities": [1.0, 1.0], "budget": 5} | arguments  # type: ignore[operator]
            with pytest.raises(AllocationError, match=f"^{re.escape(message)}$"):
                apportion_arrays(inputs.pop("utilities"), inputs.pop("budget"), **inputs)


def test_near_ties_are_told_apart_in_twice_the_precision_and_beyond() -> None:
    above = math.nextafter(1.0, 2.0)
    utilities = np.ones(9)
    for winner in range(9):
        utilities[:] = 1.0
        utilities[winner] = above
        assert np.flatnonzero(apportion_arrays(utilities, 1).quotas).tolist() == [winner]
        utilities[:] = 2.0**60
        utilities[winner] = 2.0**60 * above
        utilities[(winner + 1) % 9] = 1.0
        assert np.flatnonzero(apportion_arrays(utilities, 4).quotas)[:1].tolist() <= [winner]
        assert apportion_arrays(utilities, 4).quotas[winner] == 1


def test_labels_that_cant_settle_ties_are_refused(subtests: pytest.Subtests) -> None:
    for labels, error, message in [
        (["a", None, "c"], InputTypeError, "labels[1] must be a text, not None (NoneType)"),
        (np.array([1, 2, 3]), InputTypeError, "labels[0] must be a text, not np.int64(1) (int64)"),
        ("abc", InputTypeError, "labels must be a sequence of texts, not 'abc' (str)"),
        (np.array([["a", "b", "c"]]), InputTypeError, "labels must have one dimension"),
        (["a", "b", "c", "d"], AllocationError, "labels must be as many as utilities (3), not 4"),
        (
            ["b", "a", "b"],
            AllocationError,
            "labels: more than one source is called 'b', so that labels can't settle their tie",
        ),
    ]:
        for utilities in [[1.0, 1.0, 1.0], np.array([Fraction(1, 3)] * 3, dtype=object)]:
            with (
                subtests.test(utilities=utilities, labels=labels, error=error, message=message),
                pytest.raises(error, match=f"^{re.escape(message)}"),
            ):
                apportion_arrays(utilities, 5, labels=labels)  # type: ignore[arg-type]


def test_equal_labels_do_no_harm_where_they_decide_nothing() -> None:
    assert apportion_arrays([1.0, 1.0, 1.0], 4, labels=["b", "a", "b"]).quotas.tolist() == [1, 2, 1]
    assert apportion_arrays([1.0, 2.0], 3, labels=["b", "b"]).quotas.tolist() == [1, 2]


def test_what_doubles_hold_is_neither_copied_nor_taken_for_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: Any) -> None:
        raise AssertionError("this way is not for these numbers")

    monkeypatch.setattr(arrays, "exact_shares", forbidden)
    monkeypatch.setattr(arrays, "require_text", forbidden)
    for values in (np.array([2.0**60, 2.0**61]), np.array([2**52, 2**53])):
        assert apportion_arrays(values, 3, labels=["a", "b"]).quotas.tolist() == [1, 2]
    given = np.array([1.0, 2.0])
    assert arrays._doubles(given, arrays._Names(labels=None)) is given

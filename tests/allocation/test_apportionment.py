"""What `apportion` accepts and refuses; its quotas are judged in tests/golden and tests/property."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibudget.allocation.quotas import allocate, apportion
from calibudget.errors import AllocationError, InputTypeError


def test_all_kinds_of_numbers_give_one_answer() -> None:
    expected = apportion({"a": 1, "b": 2, "c": 3}, 10).quotas
    for one, two, three in [
        (1.0, 2.0, 3.0),
        (Fraction(1, 3), Fraction(2, 3), 1),
        (Decimal("0.1"), Decimal("0.2"), Decimal("0.3")),
        (np.float32(1), np.int64(2), 3),
        (1e30, 2e30, 3e30),
    ]:
        made = apportion({"a": one, "b": two, "c": three}, np.int64(10))  # type: ignore[arg-type, dict-item]
        assert made.quotas == expected
        assert made.budget == 10


def test_huge_integers_are_exact() -> None:
    budget = 10**30 + 1
    made = apportion({"a": 1, "b": 1}, budget)
    assert made.quotas == {"a": budget // 2 + 1, "b": budget // 2}
    assert apportion({"a": 10**40 + 1, "b": 10**40}, 10**41).quotas["a"] > 10**41 // 2


def test_shares_beyond_the_range_of_doubles_are_infinite() -> None:
    assert apportion({"a": 1}, 10**400).shares == {"a": math.inf}


def test_no_sources_take_no_budget() -> None:
    assert apportion({}, 0).quotas == {}
    with pytest.raises(AllocationError, match="there are no sources to spend a budget of 1 on"):
        apportion({}, 1)


def test_a_budget_of_zero_gives_zero() -> None:
    assert apportion({"a": 1, "b": 0}, 0).quotas == {"a": 0, "b": 0}


def test_labels_are_ordered_by_code_point() -> None:
    made = apportion({"é": 1, "a": 1, "Z": 1, "\U0001f600": 1, "\uffff": 1}, 3)
    assert list(made.quotas) == ["Z", "a", "é", "\uffff", "\U0001f600"]
    assert list(made.quotas.values()) == [1, 1, 1, 0, 0]


def test_utility_zero_stays_at_the_lower_bound_until_all_others_are_full() -> None:
    assert apportion({"a": 0, "b": 1}, 5, lower={"a": 1, "b": 0}).quotas == {"a": 1, "b": 4}
    bounds: dict[str, Any] = {"lower": {"a": 1, "b": 0, "c": 0}, "upper": {"a": 9, "b": 3, "c": 9}}
    assert apportion({"a": 0, "b": 1, "c": 0}, 4, **bounds).quotas == {"a": 1, "b": 3, "c": 0}
    made = apportion({"a": 0, "b": 1, "c": 0}, 8, **bounds)
    assert made.quotas == {"a": 3, "b": 3, "c": 2}
    assert made.shares == {"a": 2.5, "b": 3.0, "c": 2.5}


def test_all_zero_utilities_share_evenly() -> None:
    assert apportion({"a": 0, "b": 0.0, "c": 0}, 4).quotas == {"a": 2, "b": 1, "c": 1}


def test_real_bounds_are_rounded_inwards() -> None:
    made = apportion({"a": 1, "b": 9}, 10, lower={"a": 1.2, "b": 0}, upper={"a": 9, "b": Fraction(17, 2)})
    assert made.quotas == {"a": 2, "b": 8}
    assert made.floor_quotas == {"a": 2, "b": 0}


def test_a_lower_bound_may_leave_no_upper_bound() -> None:
    assert apportion({"a": 1, "b": 1}, 10, lower={"a": 8, "b": 0}).quotas == {"a": 8, "b": 2}


@pytest.mark.parametrize("budget", [True, 3.0, 2.5, "3", None, Fraction(3)])
def test_a_budget_that_is_no_integer_is_refused(budget: Any) -> None:
    with pytest.raises(InputTypeError, match="the budget must be an integer"):
        apportion({"a": 1}, budget)


@pytest.mark.parametrize(
    ("utilities", "bounds", "message"),
    [
        ({"a": -1}, {}, "the utility of 'a' must not be negative, but is -1"),
        ({"a": math.nan}, {}, "the utility of 'a' must be finite, but is nan"),
        ({"a": math.inf}, {}, "the utility of 'a' must be finite, but is inf"),
        ({"a": 1}, {"lower": {"a": -1}}, "the lower bound of 'a' must not be negative, but is -1"),
        ({"a": 1}, {"upper": {"a": math.inf}}, "the upper bound of 'a' must be finite, but is inf"),
        ({"a": 1}, {"lower": {"a": 3}, "upper": {"a": 2}}, "the lower bound of 'a' is 3 and its upper bound only 2"),
        ({"a": 1}, {"lower": {"a": 6}}, "the lower bounds come to 6, 1 above the budget 5"),
        ({"a": 1, "b": 1}, {"upper": {"a": 2, "b": 1}}, "the upper bounds come to 3, 2 short of the budget 5"),
        (
            {"a": 1, "b": 1},
            {"lower": {"a": 0}},
            "lower and utilities must name the same sources, but 'b' is missing from lower",
        ),
        (
            {"a": 1},
            {"upper": {"a": 9, "b": 9}},
            "upper and utilities must name the same sources, but 'b' is missing from utilities",
        ),
        (
            {"a": 1, "b": 1},
            {"upper": {"a": 9, "c": 9, "d": 1}},
            "upper and utilities must name the same sources, but 'b' is missing from upper "
            "and 'c', 'd' are missing from utilities",
        ),
    ],
)
def test_refusals_name_the_source_and_the_numbers(utilities: Any, bounds: Any, message: str) -> None:
    with pytest.raises(AllocationError) as caught:
        apportion(utilities, 5, **bounds)
    assert str(caught.value) == message


def test_long_lists_of_sources_are_cut() -> None:
    labels = dict.fromkeys("abcdefgh", 1)
    with pytest.raises(AllocationError, match=r"'a', 'b', 'c', 'd', 'e' and 3 more are missing from lower$"):
        apportion(labels, 5, lower={})
    with pytest.raises(AllocationError, match=r"'a', 'b', 'c', 'd', 'e' and 1 more are missing from lower$"):
        apportion(dict.fromkeys("abcdef", 1), 5, lower={})
    with pytest.raises(AllocationError, match=r"but 'a', 'b', 'c', 'd', 'e' are missing from lower$"):
        apportion(dict.fromkeys("abcde", 1), 5, lower={})


@pytest.mark.parametrize("utilities", [{"a": True}, {"a": "1"}, {"a": None}])
def test_utilities_of_the_wrong_type_are_refused(utilities: Any) -> None:
    with pytest.raises(InputTypeError, match="the utility of 'a' must be a real number"):
        apportion(utilities, 1)


def test_unknown_sources_of_any_kind_are_named() -> None:
    with pytest.raises(
        AllocationError, match=r"lower and utilities must name the same sources, but 1, 'z' are missing from utilities$"
    ):
        apportion({"a": 1}, 1, lower={"z": 0, 1: 0, "a": 0})  # type: ignore[dict-item]


class Label(str):
    """A text of a kind of its own, as numpy's are."""


def test_labels_must_be_texts() -> None:
    assert apportion({Label("a"): 1}, 1).quotas == {"a": 1}
    with pytest.raises(InputTypeError, match=r"a source's label must be a text, not 1 \(int\)"):
        apportion({1: 1}, 1)  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", [3, None, 0.5, "a", ["a"], {"a"}])
def test_numbers_come_by_label(wrong: Any) -> None:
    with pytest.raises(InputTypeError, match="the numbers of the sources must be a mapping by label, not "):
        apportion(wrong, 3)
    with pytest.raises(InputTypeError, match="the numbers of the sources must be a mapping by label, not "):
        allocate(wrong, {"a": 1}, 3)
    with pytest.raises(InputTypeError, match="utilities must be a mapping by label, not "):
        allocate({"a": 5}, wrong, 3)
    for name in () if wrong is None else ("lower", "upper"):
        with pytest.raises(InputTypeError, match=f"{name} must be a mapping by label, not "):
            apportion({"a": 1}, 3, **{name: wrong})
    for name in () if wrong is None else ("floors", "caps"):
        with pytest.raises(InputTypeError, match=f"{name} must be a mapping by label, not "):
            allocate({"a": 5}, {"a": 1}, 3, **{name: wrong})


def test_many_sources_give_the_answer_of_few() -> None:
    """Beyond a few hundred sources of float utility the work is done in arrays."""
    names = [f"{k:04}" for k in range(1_000)]
    made = apportion({name: 0.1 * (k % 7) for k, name in enumerate(names)}, 4_001, upper=dict.fromkeys(names, 9))
    exact = apportion(
        {name: Fraction(0.1 * (k % 7)) for k, name in enumerate(names)}, 4_001, upper=dict.fromkeys(names, 9)
    )
    assert made == exact


def test_a_bad_utility_among_many_is_named() -> None:
    utilities = {f"{k:04}": 1.0 for k in range(1_000)}
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(AllocationError, match="the utility of '0500' must"):
            apportion(utilities | {"0500": bad}, 10)

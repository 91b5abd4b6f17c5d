"""One budget over sources: by arrays or by plain integers, as suits its size and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibudget.allocation.exact import budget_spread
from calibudget.allocation.exact.budget_spread import spread, spread_arrays
from calibudget.allocation.exact.doubles import LARGEST_BUDGET
from calibudget.allocation.exact.integers import exact_shares
from calibudget.errors import AllocationError


def test_no_budget_and_full_budget_need_no_level() -> None:
    lower, upper = np.array([1, 2]), np.array([5, 6])
    utilities = np.array([1.0, 3.0])
    for budget, expected in ((3, [1, 2]), (11, [5, 6])):
        made = spread_arrays(utilities, lower, upper, budget)
        assert made.quotas.tolist() == expected  # type: ignore[union-attr]
        assert made.shares().tolist() == expected  # type: ignore[union-attr]
    assert lower.tolist() == [1, 2]


def test_sources_at_bounds_do_not_take_part() -> None:
    utilities = np.array([0.0, 5.0, 1.0, 1.0])
    made = spread_arrays(utilities, np.array([2, 4, 0, 0]), np.array([9, 4, 9, 9]), 11)
    assert made.quotas.tolist() == [2, 4, 3, 2]  # type: ignore[union-attr]
    assert made.shares().tolist() == [2.0, 4.0, 2.5, 2.5]  # type: ignore[union-attr]


def test_what_the_filter_does_not_take_is_none() -> None:
    one = np.ones(1)
    assert spread_arrays(np.array([]), np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0) is None
    assert spread_arrays(one, np.zeros(1, dtype=np.int64), np.array([2**50]), LARGEST_BUDGET + 1) is None
    assert spread_arrays(one, np.zeros(1, dtype=np.int64), np.array([2**50]), LARGEST_BUDGET) is not None


def test_a_source_without_room_does_not_set_the_level() -> None:
    """It is full and has hardly any utility: by its bound, the level would be far too high."""
    lower, upper = np.array([1, 0, 5]), np.array([9, 3, 5])
    assert spread_arrays(np.array([1.0, 1e10, 1e-300]), lower, upper, 9).quotas.tolist() == [1, 3, 5]  # type: ignore[union-attr]


def forbidden(*_args: Any) -> None:
    raise AssertionError("this way is not for this problem")


def spread_evenly(utilities: Any, budget: Any, upper: Any = 2**60) -> Any:
    size = len(utilities)
    return spread(utilities, [f"{k:04}" for k in range(size)], [0] * size, [upper] * size, budget).quotas


@pytest.mark.parametrize("size", [192, 193, 1_000])
@pytest.mark.parametrize("budget", [7, LARGEST_BUDGET])
@pytest.mark.parametrize("zeros", [0, 5])
def test_many_doubles_never_become_large_integers(
    monkeypatch: pytest.MonkeyPatch, size: int, budget: Any, zeros: int
) -> None:
    monkeypatch.setattr(budget_spread, "exact_shares", forbidden)
    assert sum(spread_evenly([0.0] * zeros + [0.25] * (size - zeros), budget)) == budget


@pytest.mark.parametrize(
    ("utilities", "budget"), [([0.25] * 191, 7), ([0.25] * 191 + [1], 7), ([0.25] * 192, LARGEST_BUDGET + 1)]
)
def test_few_sources_other_numbers_and_huge_budgets_go_by_integers(
    monkeypatch: pytest.MonkeyPatch, utilities: Any, budget: Any
) -> None:
    monkeypatch.setattr(budget_spread, "spread_arrays", forbidden)
    assert sum(spread_evenly(utilities, budget)) == budget


def test_what_the_filter_cannot_decide_goes_by_integers() -> None:
    """Wide utilities between floors and caps, as in test_filtering, and others without room."""
    utilities = [1.0, 1e308, 1.0, *[1.0] * 200]
    lower, upper = [1, 0, 0, *[0] * 200], [2, 2, 2, *[0] * 200]
    made = spread(utilities, [f"{k:04}" for k in range(203)], lower, upper, 3)
    assert made.quotas[:3] == [1, 2, 0]
    assert made.shares()[:3] == [1.0, 2.0, 2e-308]


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), float("nan")])
def test_one_wrong_utility_of_many_is_named(wrong: float) -> None:
    with pytest.raises(AllocationError, match=r"^the utility of '0100' must "):
        spread_evenly([1.0] * 100 + [wrong] + [1.0] * 100, 7)


@pytest.mark.parametrize("upper", [3, 2**70])
def test_many_sources_keep_their_upper_bounds(upper: int) -> None:
    utilities = [1000.0] + [1.0] * 199
    exact = exact_shares([1000] + [1] * 199, [0] * 200, [upper] * 200, 250).quotas()
    assert spread_evenly(utilities, 250, upper) == exact
    assert exact[0] == min(upper, 209)

"""The paper's rule: floors, caps, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from calibudget.allocation.quotas import allocate
from calibudget.errors import AllocationError
from calibudget.records import Allocation

POOLS = {"a": 100, "b": 50, "c": 10}
EVEN = {"a": 1, "b": 1, "c": 1}


def test_floors_come_first_and_the_rest_goes_by_utility() -> None:
    made = allocate(POOLS, {"a": 3, "b": 1, "c": 0}, 70, 20)
    assert made.floor_quotas == {"a": 20, "b": 20, "c": 10}
    assert made.quotas == {"a": 35, "b": 25, "c": 10}
    assert made.shares == {"a": 15.0, "b": 5.0, "c": 0.0}
    assert made.budget == 70


def pickled(made: Allocation) -> Any:
    return pickle.loads(pickle.dumps(made))  # noqa: S301 - its own bytes


def test_what_is_made_when_asked_for_is_there_all_along() -> None:
    whole = {
        "budget": 70,
        "quotas": {"a": 35, "b": 25, "c": 10},
        "shares": {"a": 15.0, "b": 5.0, "c": 0.0},
        "floor_quotas": {"a": 20, "b": 20, "c": 10},
    }
    for copied in (copy.copy, copy.deepcopy, lambda made: made, pickled):
        assert asdict(copied(allocate(POOLS, {"a": 3, "b": 1, "c": 0}, 70, 20))) == whole
    made = allocate(POOLS, {"a": 3, "b": 1, "c": 0}, 70, 20)
    assert made == allocate(POOLS, {"a": 6, "b": 2, "c": 0}, 70, 20) != replace(made, shares={})
    assert str(whole["shares"]) in repr(made)
    with pytest.raises(AttributeError, match="an allocation has no units"):
        made.units  # noqa: B018


def test_own_floors_take_the_place_of_the_common_one() -> None:
    made = allocate(POOLS, EVEN, 60, 20, floors={"a": 0, "c": 40})
    assert made.floor_quotas == {"a": 0, "b": 20, "c": 10}


def test_caps_are_blamed_for_a_budget_of_all_pools() -> None:
    with pytest.raises(AllocationError, match=r"^the caps leave 155 of 160 units, 5 short of the budget 160"):
        allocate(POOLS, EVEN, 160, caps={"c": 5})


def test_every_pool_may_be_used_up() -> None:
    assert allocate(POOLS, EVEN, 160).quotas == POOLS


def test_refusals_name_the_numbers(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (
            {"budget": 60, "floor": 30},
            "the floors of 3 sources come to 70, 10 above the budget 60: "
            "raise the budget or lower the floors (20 each always fits)",
        ),
        (
            {"budget": 170},
            "the budget 170 is 10 above all pools together (160): take a smaller budget, or let examples repeat with "
            "max_repeats",
        ),
        (
            {"budget": 150, "caps": {"a": 20}},
            "the caps leave 80 of 160 units, 70 short of the budget 150: raise them or take a smaller budget",
        ),
        (
            {"budget": 100, "floor": 30, "caps": {"a": 20}},
            "the cap of 'a' is 20, below its floor quota of 30: "
            "raise the cap, or give the source a floor of its own of at most 20",
        ),
        ({"budget": -1}, "the budget must not be negative, but is -1"),
        ({"budget": 10, "floor": -2}, "the floor must not be negative, but is -2"),
        ({"budget": 10, "caps": {"y": 1, "x": 1}}, "caps names 'x', 'y', but the sources are 'a', 'b', 'c'"),
    ]
    for arguments, message in cases:
        with subtests.test(message=message), pytest.raises(AllocationError, match=f"^{re.escape(message)}$"):
            allocate(POOLS, EVEN, **arguments)

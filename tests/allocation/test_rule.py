"""The paper's rule: floors, caps, and what they refuse."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest

from calibudget.allocation.quotas import Allocation, allocate

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


def test_every_pool_may_be_used_up() -> None:
    assert allocate(POOLS, EVEN, 160).quotas == POOLS

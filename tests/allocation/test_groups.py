"""Groups: whole units between them first, then within each."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.allocation.bounds import Group, parse_groups, spread_groups
from calibudget.allocation.check import check_plan
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.quotas import apportion
from calibudget.errors import AllocationError

POOLS = {"a": 1_000, "b": 2_000, "c": 500, "d": 3_000, "e": 100}
GROUPS = {
    "math": {"sources": ["a", "b"], "floor": "30% of budget", "cap": 1_500},
    "chat": {"sources": ["e"], "groups": {"science": {"sources": ["c", "d"], "floor": 600}}},
}


def quotas(budget: Any, groups: Any, policy: str = "proportional", pools: Any = POOLS, **inputs: Any) -> Any:
    made = plan(AllocationRequest(policy=policy, pool_sizes=pools, budget=budget, groups=groups, **inputs))
    assert check_plan(made) == []
    assert sum(made.quotas.values()) == budget
    return made.quotas


def test_each_level_is_an_apportionment_of_its_own() -> None:
    made = quotas(2_000, GROUPS)
    between = apportion({"math": 3_000, "chat": 3_600}, 2_000, lower={"math": 600, "chat": 600}).quotas
    assert made["a"] + made["b"] == between["math"] == 909
    chat = apportion({"e": 100, "science": 3_500}, between["chat"], lower={"e": 0, "science": 600}).quotas
    assert {"e": made["e"], "science": made["c"] + made["d"]} == chat
    assert {"c": made["c"], "d": made["d"]} == apportion({"c": 500, "d": 3_000}, chat["science"]).quotas


def test_a_group_floor_lifts_its_members() -> None:
    groups = {"x": {"sources": ["a"], "floor": 900}, "y": {"sources": ["b", "c", "d", "e"]}}
    assert quotas(1_000, groups, "equal")["a"] == 900


def test_a_group_cap_holds_its_members_down() -> None:
    groups = {"x": {"sources": ["a"], "cap": 50}, "y": {"sources": ["b", "c", "d", "e"]}}
    assert quotas(1_000, groups, "equal") == {"a": 50, "b": 284, "c": 283, "d": 283, "e": 100}


def test_group_bounds_count_what_floors_gave() -> None:
    groups = {"x": {"sources": ["a", "b"], "cap": 250, "floor": 230}, "y": {"sources": ["c", "d", "e"]}}
    made = quotas(1_000, groups, "weights", floor=100, weights={"a": 1, "b": 1, "c": 99, "d": 99, "e": 9})
    assert made["a"] + made["b"] == 230
    made = quotas(1_000, groups, "weights", floor=100, weights={"a": 9, "b": 9, "c": 1, "d": 1, "e": 1})
    assert made["a"] + made["b"] == 250


def test_only_members_with_room_count_in_a_groups_utility() -> None:
    groups = {"x": {"sources": ["a", "b"]}, "y": {"sources": ["c"]}}
    pools = {"a": 100, "b": 1_000, "c": 1_000}
    made = quotas(700, groups, "weights", pools=pools, floor=100, weights={"a": 9, "b": 1, "c": 1})
    assert made == {"a": 100, "b": 300, "c": 300}


def test_groups_settle_ties_by_name() -> None:
    pools = {"a": 9, "b": 9, "c": 9}
    assert quotas(4, {"z": {"sources": ["a"]}, "x": {"sources": ["b"]}, "y": {"sources": ["c"]}}, "equal", pools) == {
        "a": 1, "b": 2, "c": 1,
    }  # fmt: skip
    nested = {"g": {"sources": ["b"], "groups": {"a0": {"sources": ["a"]}, "c0": {"sources": ["c"]}}}}
    assert quotas(4, nested, "equal", pools) == {"a": 2, "b": 1, "c": 1}


def test_one_group_of_all_is_no_group() -> None:
    whole = {"all": {"sources": list(POOLS)}}
    assert (
        quotas(1_234, whole, "floor-sqrt", floor=50)
        == plan(AllocationRequest(policy="floor-sqrt", pool_sizes=POOLS, budget=1_234, floor=50)).quotas
    )


def test_plans_record_groups_in_whole_units() -> None:
    groups = plan(AllocationRequest(policy="equal", pool_sizes=POOLS, budget=2_001, groups=GROUPS)).groups
    assert groups == {
        "chat": {
            "floor": 0,
            "cap": None,
            "sources": ["e"],
            "groups": {"science": {"floor": 600, "cap": None, "sources": ["c", "d"], "groups": {}}},
        },
        "math": {"floor": 601, "cap": 1_500, "sources": ["a", "b"], "groups": {}},
    }
    again = plan(AllocationRequest(policy="equal", pool_sizes=POOLS, budget=2_001, groups=groups))
    assert again.groups == groups


def test_portions_of_the_pool_are_of_all_members_pools() -> None:
    groups = {
        "x": {"sources": ["a"], "groups": {"y": {"sources": ["b"]}}, "cap": "10% of pool"},
        "z": {"sources": ["c"]},
    }
    pools = {"a": 101, "b": 204, "c": 500}
    made = plan(AllocationRequest(policy="proportional", pool_sizes=pools, budget=500, groups=groups))
    assert made.groups["x"]["cap"] == 30  # type: ignore[index]
    assert made.quotas == {"a": 10, "b": 20, "c": 470}


def test_portions_hold_at_any_depth() -> None:
    inner = {"sources": ["b"], "floor": "50% of pool", "cap": "90% of pool"}
    deep = {"sources": ["c"], "floor": "20% of budget", "cap": "30% of budget"}
    groups = plan(
        AllocationRequest(
            policy="equal",
            pool_sizes={"a": 100, "b": 200, "c": 300},
            budget=400,
            groups={"x": {"sources": ["a"], "groups": {"y": inner, "z": deep}}},
        )
    ).groups
    bounds = {name: (group["floor"], group["cap"]) for name, group in groups["x"]["groups"].items()}  # type: ignore[index]
    assert bounds == {"y": (100, 180), "z": (80, 120)}


def test_bounds_may_be_just_kept() -> None:
    pools = {"a": 100, "b": 100}

    def of(x: Any, y: Any = None, **inputs: Any) -> Any:
        groups = {"x": {"sources": ["a"], **x}, "y": {"sources": ["b"], **(y or {})}}
        return quotas(150, groups, "floor-sqrt", pools=pools, **inputs)

    assert of({"floor": 100})["a"] == 100
    assert of({"cap": 60}, floor=60)["a"] == 60
    assert of({"floor": 70, "cap": 70})["a"] == 70
    assert of({"floor": 80}, {"floor": 70}) == {"a": 80, "b": 70}
    assert of({"cap": 80}, {"cap": 70}) == {"a": 80, "b": 70}


def test_shares_are_those_within_the_group() -> None:
    made = plan(
        AllocationRequest(
            policy="equal",
            pool_sizes=POOLS,
            budget=101,
            groups={"x": {"sources": ["a", "b"]}, "y": {"sources": ["c", "d", "e"]}},
        )
    )
    assert {k: made.sources[k].share for k in "ab"} == {"a": 20.0, "b": 20.0}
    assert {k: made.sources[k].share for k in "cde"} == dict.fromkeys("cde", 61 / 3)


def test_spreading_over_groups_wants_whole_units_and_good_utilities() -> None:
    def spread(group: Any, utility: float = 1.0) -> Any:
        return spread_groups({"x": group}, [utility], ["a"], [9], 5, [0])

    with pytest.raises(AllocationError, match=r"^the utility of 'a' must not be negative, but is -1$"):
        spread(Group(sources=("a",)), -1)
    assert spread(Group(sources=("a",))).quotas == [5]


def test_groups_without_end_are_refused() -> None:
    endless = {"sources": ["a"]}
    endless["groups"] = {"within": endless}  # type: ignore[assignment]
    with pytest.raises(AllocationError, match=r"^groups\.g\.groups\.within: .* cyclic"):
        parse_groups({"g": endless}, ["a"])

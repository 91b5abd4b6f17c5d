"""Plans: every policy, what it is made from, and what is recorded of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from calibudget.allocation.check import check_plan
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import POLICIES, policy_named, pooled_quotas
from calibudget.allocation.quotas import allocate, apportion
from calibudget.allocation.utility_factors import utilities
from calibudget.errors import AllocationError, InputTypeError, UnfedPolicyError
from calibudget.records import Exponents
from tests.conftest import statistics_of

POOLS = {"b": 2_000, "a": 500, "c": 50}


def row(pool_size: Any, mean_error: Any, sd: Any, rate: float, means: Any) -> Any:
    measured = {"mean_nll": mean_error - 0.5, "mean_error": mean_error, "bootstrap_sd": sd}
    return {"pool_size": pool_size, "error_rate": rate, "bootstrap_means": means, **measured}


STATISTICS = statistics_of(
    {
        "a": row(500, 2.0, 0.1, 0.6, (1.5, 2.0, 2.5)),
        "b": row(2_000, 1.0, 0.3, 0.2, (1.0, 1.1, 0.9)),
        "c": row(50, 3.0, 0.0, 0.9, (3.0, 3.0, 2.0)),
    },
    resamples=3,
)
WEIGHTS = {"a": 1, "b": 3, "c": 0}


def made(policy: Any, *, intervals: bool = True, **changes: Any) -> Any:
    inputs: dict[str, Any] = {
        "pool_sizes": POOLS,
        "statistics": STATISTICS,
        "budget": 1_000,
        "floor": 100,
        "weights": WEIGHTS,
        "pooled": {"a": 200, "b": 780, "c": 20},
    }
    return plan(AllocationRequest(policy=policy, **inputs | changes), intervals=intervals)


def factors(policy: Any, label: Any, **changes: Any) -> Any:
    source = made(policy, **changes).sources[label]
    return source.need, source.availability, source.reliability, source.utility


def test_every_plan_is_consistent(subtests: pytest.Subtests) -> None:
    for policy in POLICIES:
        with subtests.test(policy=policy):
            result = made(policy)
            assert check_plan(result) == []
            assert list(result.sources) == ["a", "b", "c"]
            assert result.policy == policy
            keeps = POLICIES[policy].has_floor
            assert sum(result.quotas.values()) == result.budget == 1_000
            assert result.floor == (100 if keeps else 0)
            assert result.residual_budget == (750 if keeps else 1_000)
            assert result.epsilon == 1e-12
            assert (result.floors, result.caps, result.groups, result.unit) == (None, None, None, "examples")
            for row in result.sources.values():
                assert row.quota == row.floor_quota + row.residual_quota


def test_the_papers_rule_is_utilities_and_allocate() -> None:
    result = made("calibudget")
    expected = utilities(dict(STATISTICS.sources.items()), 100)
    assert {label: row.utility for label, row in result.sources.items()} == expected
    allocation = allocate(POOLS, expected, 1_000, 100)
    assert result.quotas == allocation.quotas
    assert {label: row.share for label, row in result.sources.items()} == allocation.shares


def test_factors_that_a_policy_does_not_use_are_none() -> None:
    need, available, reliable = 1.0, math.sqrt(400), 1 / 1.1
    assert factors("calibudget", "a") == (need, available, reliable, need * math.sqrt(available) * reliable)
    assert factors("need", "a") == (need, None, None, need)
    assert factors("need-availability", "a") == (need, available, None, need * math.sqrt(available))
    assert factors("need-reliability", "a") == (need, None, reliable, need * reliable)
    assert factors("val-error-floor", "a") == (None, None, None, 0.6)
    assert factors("val-error-floor", "a", signal="z") == (None, None, None, 2.0)
    assert factors("floor-sqrt", "a") == (None, available, None, available)
    assert factors("equal", "a") == (None, None, None, 1.0)
    assert factors("proportional", "a") == (None, None, None, 500.0)
    assert factors("pooled", "a") == (None, None, None, 200.0)
    assert factors("weights", "b") == (None, None, None, 3.0)


def test_exponents_and_transforms_enter_the_utility_and_the_record() -> None:
    powers = Exponents(need=2.0, availability=0.0, reliability=1.0)
    result = made("calibudget", exponents=powers, need_transform="rank")
    assert result.exponents == powers
    assert result.need_transform == "rank"
    assert result.sources["a"].need == 1.0
    assert result.sources["c"].utility == 2.25
    assert factors("need", "c", need_transform="log1p")[0] == pytest.approx(3 * math.log(4) / math.log(24), rel=1e-15)
    assert made("equal", need_transform="rank").need_transform is None
    assert made("need-reliability", need_transform="log1p").need_transform == "log1p"


def test_pooled_quotas_are_taken_as_they_are() -> None:
    assert made("pooled").quotas == {"a": 200, "b": 780, "c": 20}


def test_policies_without_a_floor_ignore_it() -> None:
    result = made("equal", floor=100, floors={"a": 400})
    assert (result.floor, result.floors) == (0, None)
    assert result.quotas == {"a": 475, "b": 475, "c": 50}
    assert made("proportional").quotas == apportion(POOLS, 1_000).quotas


def test_a_weight_of_zero_leaves_a_source_its_floor() -> None:
    result = made("weights", floor=10)
    assert result.sources["c"].residual_capacity == 0
    assert result.quotas["c"] == 10
    assert made("weights", floor=0).quotas["c"] == 0


def test_weights_mean_the_doubles_that_are_recorded() -> None:
    result = made("weights", weights={"a": Fraction(1, 3), "b": 10**17 + 1, "c": 1})
    assert result.sources["a"].utility == 1 / 3
    assert result.sources["b"].utility == 1e17
    assert check_plan(result) == []


def test_floors_and_caps_may_be_portions() -> None:
    result = made(
        "floor-sqrt", floor="5% of budget", floors={"c": "100% of pool"}, caps={"b": "50% of budget", "a": 450}
    )
    assert result.floor == 50
    assert result.floors == {"c": 50}
    assert result.caps == {"a": 450, "b": 500}
    assert result.quotas == {"a": 450, "b": 500, "c": 50}
    assert check_plan(result) == []


def test_a_common_portion_of_the_pools_becomes_own_floors() -> None:
    result = made("floor-sqrt", floor="5% of pool", floors={"b": 7})
    assert result.floor == 0
    assert result.floors == {"a": 25, "b": 7, "c": 3}
    assert made("floor-sqrt", floors={"a": "5% of budget"}).floors == {"a": 50}
    assert made("floor-sqrt", floors={}).floors == {}


def test_caps_do_not_move_the_availability() -> None:
    assert factors("calibudget", "b", caps={"b": 1_990}) == factors("calibudget", "b")
    assert made("calibudget", caps={"b": 1_990}).quotas == made("calibudget").quotas


def test_intervals_come_from_the_replicates() -> None:
    result = made("need", budget=600)
    replicates = []
    for number in range(3):
        means = {label: s.bootstrap_means[number] for label, s in STATISTICS.sources.items()}  # type: ignore[index]
        changed = {label: replace(s, mean_error=means[label]) for label, s in STATISTICS.sources.items()}
        replicates.append(made("need", budget=600, statistics=replace(STATISTICS, sources=changed)).quotas)
    for label, source in result.sources.items():
        column = sorted(quotas[label] for quotas in replicates)
        assert source.interval == (column[0], column[-1])
    assert result.sources["a"].interval[0] < result.quotas["a"] < result.sources["a"].interval[1]


def test_only_policies_of_the_mean_error_have_intervals() -> None:
    def has(policy: Any, **changes: Any) -> Any:
        return {row.interval is not None for row in made(policy, **changes).sources.values()}

    with_intervals = [policy for policy in POLICIES if has(policy) == {True}]
    assert with_intervals == ["calibudget", "need", "need-availability", "need-reliability"]
    assert has("val-error-floor", signal="z") == {True}
    assert has("calibudget", intervals=False) == {False}
    without = {label: replace(s, bootstrap_means=None) for label, s in STATISTICS.sources.items()}
    assert has("calibudget", statistics=replace(STATISTICS, sources=without)) == {False}
    half = STATISTICS.sources | {"a": without["a"]}  # type: ignore[operator]
    assert has("calibudget", statistics=replace(STATISTICS, sources=half)) == {False}


def test_the_digest_is_kept_where_statistics_are_read() -> None:
    assert made("need", statistics_sha256="f00").statistics_sha256 == "f00"
    assert made("equal", statistics_sha256="f00").statistics_sha256 is None
    assert made("weights", statistics_sha256="f00", unit="tokens").unit == "tokens"


def test_nothing_to_give_and_nobody_to_give_to(subtests: pytest.Subtests) -> None:
    for policy in ["equal", "proportional", "floor-sqrt"]:
        with subtests.test(policy=policy):
            for pools in ({}, {"a": 0, "b": 7}):
                result = plan(AllocationRequest(policy=policy, pool_sizes=pools, budget=0))
                assert result.quotas == dict.fromkeys(pools, 0)
                assert check_plan(result) == []
            with pytest.raises(AllocationError, match="there are no sources to spend a budget of 2 on"):
                plan(AllocationRequest(policy=policy, pool_sizes={}, budget=2))


@pytest.mark.parametrize("policy", ["calibudget", "equal", "weights"])
def test_one_source_takes_it_all(policy: str) -> None:
    one = replace(STATISTICS, sources={"a": STATISTICS.sources["a"]})
    result = plan(
        AllocationRequest(policy=policy, pool_sizes={"a": 500}, statistics=one, weights={"a": 0.1}, budget=17, floor=3)
    )
    assert result.quotas == {"a": 17}
    assert check_plan(result) == []


def test_counts_of_any_size_are_exact() -> None:
    result = plan(
        AllocationRequest(
            policy="proportional", pool_sizes={"a": 10**30, "b": 10**30}, budget=10**30 + 1, caps={"b": "1% of pool"}
        )
    )
    assert result.quotas == {"a": 99 * 10**28 + 1, "b": 10**28}
    assert check_plan(result) == []
    with pytest.raises(InputTypeError, match="the budget must be an integer"):
        plan(AllocationRequest(policy="proportional", pool_sizes={"a": 10**30}, budget=1e30))  # type: ignore[arg-type]


def test_all_pools_may_be_used_up_under_any_policy() -> None:
    for policy in POLICIES:
        if policy not in ("pooled", "weights"):
            assert made(policy, budget=2_550).quotas == POOLS


def test_pooled_quotas_count_the_first_keys_of_all() -> None:
    keys = {"b": [b"\x03", b"\x01"], "a": [b"\x02", b"\x09", b"\x04"]}
    assert pooled_quotas(keys, 3) == {"a": 1, "b": 2}
    assert pooled_quotas(keys, 0) == {"a": 0, "b": 0}
    assert list(pooled_quotas(keys, 5).items()) == [("a", 3), ("b", 2)]
    assert pooled_quotas({"b": [b"\x01"], "a": [b"\x01"]}, 1) == {"a": 1, "b": 0}
    with pytest.raises(AllocationError, match=r"the budget 6 is 1 above all pools together \(5\)"):
        pooled_quotas(keys, 6)


@pytest.mark.parametrize("name", ["learning-curve", "least-nll"])
def test_a_removed_policy_is_refused_by_name(name: str) -> None:
    with pytest.raises(AllocationError, match=f"^the policy '{name}' was removed: the second of two frozen"):
        policy_named(name)


def test_what_a_policy_does_not_read_is_ignored() -> None:
    others: dict[str, Any] = {"statistics": replace(STATISTICS, sources={}), "weights": {"x": -1}, "pooled": {"x": 1.5}}
    assert made("equal", **others) == made("equal")
    assert made("weights", **others | {"weights": WEIGHTS}) == made("weights")


def test_a_missing_input_is_asked_for_and_intervals_are_made_unless_they_are_declined() -> None:
    with pytest.raises(UnfedPolicyError, match=r"the policy weights needs weights$"):
        made("weights", weights=None)
    request = AllocationRequest(policy="need", pool_sizes=POOLS, budget=600, statistics=STATISTICS)
    assert plan(request) == plan(request, intervals=True) != plan(request, intervals=False)

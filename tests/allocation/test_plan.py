"""Plans: every policy, what it is made from, and what is recorded of it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from calibudget.allocation.check import check_plan
from calibudget.allocation.plan import plan
from calibudget.allocation.policies import POLICIES, policy_named, pooled_quotas
from calibudget.allocation.quotas import allocate, apportion
from calibudget.allocation.request import AllocationRequest
from calibudget.allocation.utility_factors import utilities
from calibudget.errors import AllocationError, InputTypeError, UnfedPolicyError
from calibudget.records import Bootstrap, Exponents, SourceStatistics, Statistics

POOLS = {"b": 2_000, "a": 500, "c": 50}


def row(pool_size: Any, mean_error: Any, sd: Any, *, rate: float = 0.5, means: Any = None) -> Any:
    return SourceStatistics(
        pool_size=pool_size,
        calibration_size=100,
        mean_nll=mean_error - 0.5,
        error_rate=rate,
        mean_error=mean_error,
        bootstrap_sd=sd,
        bootstrap_means=means,
    )


STATISTICS = Statistics(
    model={},
    error="nll+wrong",
    bootstrap=Bootstrap(resamples=3, seed=1),
    sources={
        "a": row(500, 2.0, 0.1, rate=0.6, means=(1.5, 2.0, 2.5)),
        "b": row(2_000, 1.0, 0.3, rate=0.2, means=(1.0, 1.1, 0.9)),
        "c": row(50, 3.0, 0.0, rate=0.9, means=(3.0, 3.0, 2.0)),
    },
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


def test_weights_that_exclude_too_much_are_refused() -> None:
    message = (
        "the weights of 0 ('b', 'c') and the caps leave 550 of 2,550 units, 450 short of the budget 1,000: "
        "raise them or take a smaller budget"
    )
    with pytest.raises(AllocationError, match=f"^{re.escape(message)}$"):
        made("weights", weights={"a": 1, "b": 0, "c": 0.0}, floor=0, floors={"b": 50})
    with pytest.raises(AllocationError, match="all weights are 0: 'a', 'b', 'c'"):
        made("weights", weights={"c": 0, "b": 0, "a": 0})


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


def test_refusals(subtests: pytest.Subtests) -> None:
    for policy, changes, message in [
        ("best", {}, "there is no policy 'best'; the policies are calibudget, need, need-availability"),
        ("need", {"statistics": None}, "the policy need needs statistics"),
        ("weights", {"weights": None}, "the policy weights needs weights"),
        ("pooled", {"pooled": None}, "the policy pooled needs pooled, the counts of one draw from all pools"),
        (
            "weights",
            {"weights": {"a": 1, "b": 1}},
            "weights and the pool sizes must name the same sources, but 'c' is missing from weights",
        ),
        ("need", {"floors": {"a": "x"}}, "the floor of 'a' is 'x', which can't be read"),
        ("pooled", {"caps": {"a": 1}}, "pooled draws from all pools together and knows neither caps nor groups"),
        (
            "need",
            {"pool_sizes": {"a": 500, "b": 600}},
            "statistics and the pool sizes must name the same sources, but 'c' is missing from the pool sizes",
        ),
        ("val-error-floor", {"signal": "y"}, "signal is 'y', but only error_rate and z are known"),
        ("weights", {"weights": WEIGHTS | {"a": -1}}, "the weight of 'a' must not be negative"),
        ("need", {"exponents": Exponents(need=math.inf)}, "exponents.need must be finite"),
        ("need", {"floors": {"z": "5% of pool"}}, "floors names 'z', but the sources are 'a', 'b', 'c'"),
        ("need", {"caps": {"b": "101% of pool"}}, "the cap of 'b' is 1.01 of the pool"),
        ("need", {"exponents": Exponents(need=1e6)}, "exponents.need: of "),
        ("calibudget", {"exponents": Exponents(reliability=1e6)}, "to the power of 1e+06 is too small a number"),
        ("need", {"pool_sizes": POOLS | {"a": 10**400}}, "the pool size of 'a' is 1000"),
        ("weights", {"weights": WEIGHTS | {"a": Fraction(1, 10**400)}}, "too small for a double"),
        ("need", {"unit": "words"}, "the unit is 'words', but a budget counts examples or tokens"),
    ]:
        with (
            subtests.test(policy=policy, changes=changes, message=message),
            pytest.raises(AllocationError, match=re.escape(message)),
        ):
            made(policy, **changes)  # type: ignore[arg-type]


def test_a_policy_without_its_input_is_told_from_a_budget_that_cant_be_met() -> None:
    cases: list[Any] = [
        ("need", {"statistics": None}),
        ("weights", {"weights": None}),
        ("pooled", {"pooled": None}),
        ("pooled", {"caps": {"a": 1}}),
    ]
    for policy, changes in cases:
        with pytest.raises(UnfedPolicyError):
            made(policy, **changes)
    with pytest.raises(AllocationError, match="above all pools") as caught:
        made("equal", budget=3_000)
    assert not isinstance(caught.value, UnfedPolicyError)


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


def test_a_signal_that_a_source_lacks_is_named() -> None:
    sources = STATISTICS.sources | {"b": replace(STATISTICS.sources["b"], error_rate=None)}  # type: ignore[operator]
    message = "'b' has no error rate, since its answers aren't checked: choose signal: z"
    with pytest.raises(UnfedPolicyError, match=f"^{message}$"):
        made("val-error-floor", statistics=replace(STATISTICS, sources=sources))


def test_pooled_quotas_count_the_first_keys_of_all() -> None:
    keys = {"b": [b"\x03", b"\x01"], "a": [b"\x02", b"\x09", b"\x04"]}
    assert pooled_quotas(keys, 3) == {"a": 1, "b": 2}
    assert pooled_quotas(keys, 0) == {"a": 0, "b": 0}
    assert list(pooled_quotas(keys, 5).items()) == [("a", 3), ("b", 2)]
    assert pooled_quotas({"b": [b"\x01"], "a": [b"\x01"]}, 1) == {"a": 1, "b": 0}
    with pytest.raises(AllocationError, match=r"the budget 6 is 1 above all pools together \(5\)"):
        pooled_quotas(keys, 6)


def test_bootstrap_means_that_cant_be_used_are_refused_by_name(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ((1.0,), AllocationError, "'a' has 2 bootstrap_means, but 'b' has 1: every source needs as many"),
        ((1.0, math.nan), AllocationError, "bootstrap_means[1] of 'b' must be finite, but is nan"),
        ((1.0, None), InputTypeError, "bootstrap_means[1] of 'b' must be a number, not None (NoneType)"),
        (5, InputTypeError, "bootstrap_means of 'b' must be a sequence of numbers"),
    ]
    for means, error, message in cases:
        with subtests.test(message=message):
            sources = {label: replace(row, bootstrap_means=(1.0, 2.0)) for label, row in STATISTICS.sources.items()}
            sources["b"] = replace(sources["b"], bootstrap_means=means)
            with pytest.raises(error, match=re.escape(message)):
                made("need", statistics=replace(STATISTICS, sources=sources))


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

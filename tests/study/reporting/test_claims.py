from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from calibudget.study.reporting.claims import (
    Effects,
    detectable_effect,
    effects,
    holm,
    judge_claims,
    seeds_needed,
    sign_flip_p,
    t_test_p,
    wins,
)

DIFFERENCES = st.lists(st.integers(-1000, 1000).map(lambda n: n / 64), min_size=2, max_size=9)


def made(differences: list[float]) -> Effects:
    seeds = dict(enumerate(differences))
    return effects(seeds, dict.fromkeys(seeds, 0.0))


@given(DIFFERENCES)
def test_t_test_agrees_with_scipy(differences: list[float]) -> None:
    p = t_test_p(made(differences))
    if len(set(differences)) == 1:
        assert p is None
    else:
        assert p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=1e-9)


@given(DIFFERENCES)
def test_sign_flips_agree_with_going_through_them_all(differences: list[float]) -> None:
    exact = [round(64 * value) for value in differences]
    signs = itertools.product((1, -1), repeat=len(exact))
    totals = [abs(sum(s * v for s, v in zip(row, exact, strict=True))) for row in signs]
    assert sign_flip_p(made(differences)) == sum(total >= abs(sum(exact)) for total in totals) / len(totals)


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1))
def test_holm_is_the_closure_of_bonferroni(p_values: dict[str, float]) -> None:
    found = holm(p_values)
    for name in p_values:
        families = [
            family
            for size in range(1, len(p_values) + 1)
            for family in itertools.combinations(p_values, size)
            if name in family
        ]
        closed = max(min(1.0, len(family) * min(p_values[one] for one in family)) for family in families)
        assert found[name] == pytest.approx(closed)


def test_claims_are_judged_together() -> None:
    strong, weak = [0.9, 1.0, 1.1, 1.0], [0.4, -0.1, 0.5, 0.3]
    both = judge_claims({"strong": (made(strong), "higher"), "weak": (made(weak), "higher")})
    assert both["strong"].supported
    assert not both["weak"].supported
    assert both["weak"].adjusted_p == both["weak"].p
    assert both["strong"].adjusted_p == pytest.approx(2 * stats.ttest_1samp(strong, 0).pvalue)
    assert both["strong"].consistent
    assert not both["weak"].consistent
    # the same numbers of a metric that is better when lower speak against it
    assert not judge_claims({"strong": (made(strong), "lower")})["strong"].supported


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1), st.integers(0, 4))
def test_claims_that_arent_known_count_as_those_of_p_1(p_values: dict[str, float], more: int) -> None:
    whole = holm({**p_values, **{f"unknown {number}": 1.0 for number in range(more)}})
    assert holm(p_values, more=more) == {name: whole[name] for name in p_values}


@pytest.mark.parametrize(("seeds", "power"), [(3, 0.8), (10, 0.8), (30, 0.9)])
def test_detectable_effects_are_found_as_often_as_said(seeds: int, power: float) -> None:
    effect = detectable_effect(2.0, seeds, power=power)
    assert effect is not None
    draws = np.random.default_rng(seeds).normal(effect, 2.0, size=(20_000, seeds))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(power, abs=0.012)


@settings(max_examples=8)
@given(st.floats(0.05, 4), st.floats(0.1, 3))
def test_seeds_needed_is_the_fewest_that_detect_the_effect(effect: float, sd: float) -> None:
    needed = seeds_needed(effect, sd)
    assert needed is not None
    found = detectable_effect(sd, needed)
    assert found is not None
    assert found <= effect * (1 + 1e-9)
    if needed > 2:
        before = detectable_effect(sd, needed - 1)
        assert before is not None
        assert before > effect * (1 - 1e-9)


def test_wins_are_counted_in_the_direction_of_the_metric() -> None:
    first = {("a", 1): 0.5, ("a", 2): 0.5, ("b", 1): 0.25, ("b", 2): 0.75}
    second = {("a", 1): 0.25, ("a", 2): 0.5, ("b", 1): 0.5, ("b", 2): 0.5}
    higher, lower = wins(first, second, "higher"), wins(first, second, "lower")
    assert (higher.won, higher.tied, higher.lost, higher.total) == (2, 1, 1, 4)
    assert (lower.won, lower.tied, lower.lost) == (1, 1, 2)


def test_rounding_is_neither_a_difference_nor_a_spread() -> None:
    policy, comparator = {1: 0.1 + 0.2, 2: 0.71, 3: 0.11}, {1: 0.3, 2: 0.71, 3: 0.11}
    assert policy[1] != comparator[1]
    assert set(effects(policy, comparator).by_seed.values()) == {0.0}
    same = effects({1: 0.71, 2: 0.81, 3: 0.11}, {1: 0.7, 2: 0.8, 3: 0.1})
    assert len(set(same.by_seed.values())) > 1
    assert same.sd == 0
    assert t_test_p(same) is None
    small = effects({1: 0.5 + 1e-9, 2: 0.5 + 2e-9}, {1: 0.5, 2: 0.5})
    assert small.mean == pytest.approx(1.5e-9, rel=1e-6)
    assert small.sd
    tasks = wins(
        {("a", seed): one for seed, one in policy.items()}, {("a", s): o for s, o in comparator.items()}, "higher"
    )
    assert (tasks.won, tasks.tied, tasks.lost) == (0, 3, 0)

"""The selector seam: order, ties, nesting, mixes, what is recorded and what is refused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import InputError
from calibudget.keys import order_key
from calibudget.selection.draw import draw_queues
from calibudget.selection.selectors import UNIFORM, Mix, Scored, Uniform, require_shares
from calibudget.store.canonical import canonical_json

POOL = [f"r{i:02}" for i in range(20)]
IN_KEY_ORDER = sorted(POOL, key=lambda one: order_key("selection", 42, "s", one))


def scored(scores: dict[str, float], name: str = "influence") -> Scored:
    return Scored(name=name, scores={"s": scores})


def picks(selector: Any, quota: int, pool: list[str] = POOL, seed: int = 42) -> tuple[str, ...]:
    queue = sorted(pool, key=lambda one: order_key("selection", seed, "s", one))
    return draw_queues({"s": queue}, {"s": quota}, selection_seed=seed, selector=selector).picks["s"]


def test_uniform_is_the_default_and_takes_the_first_in_key_order() -> None:
    assert picks(UNIFORM, 7) == tuple(IN_KEY_ORDER[:7])
    assert UNIFORM.describe() == {"name": "uniform"}


def test_the_best_scores_are_taken_and_given_back_in_key_order() -> None:
    selector = scored({one: float(i) for i, one in enumerate(POOL)})
    taken = picks(selector, 5)
    assert set(taken) == {"r15", "r16", "r17", "r18", "r19"}
    assert list(taken) == [one for one in IN_KEY_ORDER if one in set(taken)]


def test_ties_go_by_key_so_equal_scores_are_the_uniform_draw() -> None:
    assert picks(scored(dict.fromkeys(POOL, 0.5)), 9) == picks(UNIFORM, 9)
    one_better = scored(dict.fromkeys(POOL, 0.5) | {IN_KEY_ORDER[19]: 0.6})
    assert set(picks(one_better, 4)) == {IN_KEY_ORDER[19], *IN_KEY_ORDER[:3]}
    assert picks(scored(dict.fromkeys(POOL, 0.5)), 9, seed=43) != picks(UNIFORM, 9)


def test_a_candidate_without_a_score_is_never_taken() -> None:
    selector = scored({"r03": -5.0, "r04": -6.0})
    assert picks(selector, 1) == ("r03",)
    assert set(picks(selector, 2)) == {"r03", "r04"}
    with pytest.raises(InputError, match="s: the selector influence has 2 of 20 candidates to take 3 from"):
        picks(selector, 3)
    with pytest.raises(InputError, match="s: the selector uniform has 2 of 2 candidates to take 3 from"):
        UNIFORM.take("s", ["r03", "r04"], 3)
    with pytest.raises(InputError, match="has 0 of 20 candidates to take 1 from"):
        picks(Scored(name="influence", scores={"other": {"r03": 1.0}}), 1)
    assert picks(selector, 0) == ()


def test_what_a_scored_selector_records_depends_on_its_scores_alone() -> None:
    first, turned = scored({"a": 0.5, "b": 2.0}), scored({"b": np.float32(2), "a": 0.5})  # type: ignore[dict-item]
    digest = hashlib.sha256(canonical_json([["s", [["a", 0.5], ["b", 2.0]]]])).hexdigest()
    assert first.describe() == {"name": "influence", "parameters": {}, "scores_sha256": digest} == turned.describe()
    assert scored({"a": 0.5, "b": 2.5}).describe() != first.describe()
    assert Scored(name="score", scores={}, parameters={"column": "x"}).describe()["parameters"] == {"column": "x"}


def mix(selector: Any, influence: float = 0.7, uniform: float = 0.3) -> Mix:
    return Mix(parts={"influence": selector, "uniform": UNIFORM}, weights={"influence": influence, "uniform": uniform})


def test_a_mix_parts_the_quota_by_largest_remainders_and_the_parts_never_meet() -> None:
    ranks = {one: -float(i) for i, one in enumerate(POOL)}
    selector = mix(scored(ranks))
    taken = selector.take("s", IN_KEY_ORDER, 10)
    best, rest = POOL[:7], [one for one in IN_KEY_ORDER if one not in POOL[:7]]
    assert set(taken[:7]) == set(best)
    assert list(taken[7:]) == rest[:3]
    assert set(picks(selector, 10)) == set(taken)
    assert len(set(picks(selector, 20))) == 20


@pytest.mark.parametrize(("quota", "influence"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_the_parts_are_integers_by_the_allocators_rounding(quota: int, influence: int) -> None:
    # of 5, the doubles 0.7 and 0.3 claim a little less than 3.5 and a little more than 1.5
    counts = {"a": 0, "b": 0}

    @dataclass(frozen=True)
    class Counting(Uniform):
        label: str

        def take(self, source: Any, candidates: Any, quota: Any) -> Any:
            counts[self.label] = quota
            return candidates[:quota]

    parts = {"a": Counting("a"), "b": Counting("b")}
    Mix(parts=parts, weights={"a": 0.7, "b": 0.3}).take("s", IN_KEY_ORDER, quota)
    assert counts == {"a": influence, "b": quota - influence}


@pytest.mark.parametrize(
    ("influence", "uniform", "total"), [(0.7, 0.2, "0.9"), (70, 30, "100"), (0.7, 0.3 + 2e-9, "1.000000002")]
)
def test_weights_of_a_mix_sum_to_one(influence: float, uniform: Any, total: str) -> None:
    require_shares({"influence": 1 / 3, "uniform": 2 / 3 + 1e-10})
    shares = r"\{influence: 0\.7\d*, uniform: 0\.[23]\d*\}"
    with pytest.raises(InputError, match=rf"must sum to 1, not to {total}; the same proportions are {shares}$"):
        require_shares({"influence": influence, "uniform": uniform})


def test_weights_may_miss_one_by_exactly_a_billionth_and_those_of_nothing_are_told() -> None:
    limit = Fraction(1, 10**9)
    for total in (1 - limit, 1 + limit):
        require_shares({"a": total})  # type: ignore[dict-item]
        with pytest.raises(InputError, match="must sum to 1"):
            require_shares({"a": 1 + (total - 1) * Fraction(1_000_001, 1_000_000)})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"^a mix needs a weight above 0$"):
        require_shares({"influence": 0.0, "uniform": 0.0})
    idle = Mix(parts={"a": UNIFORM, "b": scored({})}, weights={"a": 1.0, "b": 0.0})
    assert idle.take("s", IN_KEY_ORDER, 2) == IN_KEY_ORDER[:2]  # a part of nothing isn't asked


def test_a_mix_records_its_parts() -> None:
    selector = mix(scored({"a": 1.0}))
    assert selector.describe() == {
        "name": "mix",
        "parts": {
            "influence": {"weight": 0.7, **scored({"a": 1.0}).describe()},
            "uniform": {"weight": 0.3, "name": "uniform"},
        },
    }


scores = st.dictionaries(st.sampled_from(POOL), st.floats(-3, 3).map(lambda x: round(x, 1)), min_size=8)


@pytest.mark.slow
@given(scores=scores, seed=st.integers(0, 99), small=st.integers(0, 8), large=st.integers(0, 8), data=st.data())
def test_a_larger_quota_keeps_the_smaller_ones_picks(scores: Any, seed: Any, small: Any, large: Any, data: Any) -> None:
    small, large = sorted((small, large))
    shuffled = data.draw(st.permutations(POOL))
    for selector in (UNIFORM, scored(scores), mix(scored(scores)), mix(scored(scores), 0.31, 0.69)):
        few, many = picks(selector, small, seed=seed), picks(selector, large, shuffled, seed)
        assert set(few) <= set(many)
        assert len(many) == large


@pytest.mark.slow
@given(scores=scores, quota=st.integers(0, 8))
def test_no_candidate_left_behind_is_better_than_one_taken(scores: Any, quota: Any) -> None:
    taken = set(picks(scored(scores), quota))
    left = [scores[one] for one in POOL if one in scores and one not in taken]
    assert all(scores[one] >= max(left, default=-9.0) for one in taken)

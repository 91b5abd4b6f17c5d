"""The verdict of a comparison in words, and the seeds that would show a difference worth having."""

from __future__ import annotations

from collections.abc import Callable
from statistics import stdev

import numpy as np
import pytest
from scipy import stats

from calibudget.study.reporting.comparison_verdict import Verdict, verdicts
from calibudget.study.reporting.results import Results

POINT = {"recipe": {"seeds": [1, 2, 3, 4]}}


def _first(results: Results) -> Verdict:
    return verdicts(results)[0]


def test_a_difference_that_seeds_do_not_show_is_told_with_the_seeds_that_it_takes(
    made_up: Callable[..., Results],
) -> None:
    by_seed = {1: 0.02, 2: -0.01, 3: 0.012, 4: -0.006}
    found = _first(made_up(POINT, {"BoolQ": by_seed}))
    assert found.words.startswith(
        "rule minus plain, BoolQ: +0.40 pp [-1.88, +2.68] over 4 seeds; no difference shown; about "
    )
    assert found.seeds_needed is not None
    assert f"about {found.seeds_needed} seeds would be needed for 1 pp" in found.words
    luck = np.random.default_rng(0)
    powers = []
    for seeds in (found.seeds_needed, found.seeds_needed - 3):
        drawn = luck.normal(0.01, stdev(by_seed.values()), size=(20_000, seeds))
        powers.append(float(np.mean(stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05)))
    assert powers[0] == pytest.approx(0.8, abs=0.03)
    assert powers[1] < powers[0]


@pytest.mark.parametrize(("sign", "word"), [(1, "better"), (-1, "worse")])
def test_a_difference_that_is_shown_is_called_by_its_direction(
    made_up: Callable[..., Results], sign: int, word: str
) -> None:
    by_seed = {seed: sign * (0.05 + 0.001 * seed) for seed in (1, 2, 3, 4)}
    found = verdicts(made_up(POINT, {"BoolQ": by_seed, "NLL": by_seed}))
    told = {one.endpoint: one.words for one in found}
    assert f"shown to be {word}, adjusted p < 0.001" in told["BoolQ"]
    other = {"better": "worse", "worse": "better"}[word]  # of an NLL less is better
    assert f"shown to be {other}" in told["NLL"]
    assert told["Kept"].endswith("described, not judged")


def test_one_seed_and_an_undefined_endpoint_say_nothing(made_up: Callable[..., Results]) -> None:
    one = {"recipe": {"seeds": [1], "status": "exploratory"}}
    assert _first(made_up(one, {"BoolQ": {1: 0.3}})).words.endswith("one seed says nothing of spread")
    undefined = _first(made_up(POINT, {"BoolQ": {2: None}}))
    assert undefined.difference is None
    assert undefined.words.endswith("undefined for a seed, so nothing is said")

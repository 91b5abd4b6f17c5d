"""From scores to statistics (paper 2.2)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from calibudget.allocation.bootstrap import SmallCalibrationWarning, bootstrap, summarise
from calibudget.errors import AllocationError, ScoringError
from calibudget.records import Bootstrap, Score


def score(source: Any, number: Any, *, nll: float = 1.0, correct: bool = True, error: Any = None) -> Any:
    wrong = 0.0 if correct else 1.0
    return Score(
        source=source,
        record_id=f"r{number}",
        response_tokens=1,
        nll=nll,
        correct=correct,
        prediction=None,
        error=nll + wrong if error is None else error,
    )


def scores(source: Any, count: int = 40) -> Any:
    return [score(source, k, nll=0.1 * k, correct=k % 4 != 0) for k in range(count)]


def summed(given: Any, pools: Any, **changes: Any) -> Any:
    return summarise(
        given,
        pools,
        **{"model": {"name": "m"}, "error": "nll+wrong", "bootstrap_seed": 3, "resamples": 10} | changes,  # type: ignore[arg-type]
    )


def test_one_row_a_source_in_code_point_order() -> None:
    made = summed(scores("b") + scores("a"), {"b": 7, "a": 5})
    assert list(made.sources) == ["a", "b"]
    assert (made.model, made.error, made.bootstrap) == ({"name": "m"}, "nll+wrong", Bootstrap(resamples=10, seed=3))
    row = made.sources["b"]
    assert (row.pool_size, row.calibration_size, row.error_rate) == (7, 40, 0.25)
    assert row.mean_nll == math.fsum(0.1 * k for k in range(40)) / 40
    assert row.mean_error == math.fsum(s.error for s in scores("b")) / 40
    ((means, sd),) = bootstrap([("b", [s.error for s in scores("b")])], resamples=10, seed=3)
    assert (row.bootstrap_means, row.bootstrap_sd) == (tuple(means.tolist()), sd)
    assert summed(scores("b"), {"b": 7}, keep_means=False).sources["b"] == replace(row, bootstrap_means=None)
    with pytest.raises(AllocationError, match="resamples must be from 1 to 1,000,000, not 0"):
        summed(scores("b"), {"b": 7}, resamples=0)


def test_the_order_of_the_scores_changes_nothing() -> None:
    given = scores("a") + scores("b")
    assert summed(given, {"a": 1, "b": 2}) == summed(given[::-1], {"b": 2, "a": 1})


def test_the_nll_rule_takes_no_notice_of_answers() -> None:
    given = [score("a", k, nll=float(k), correct=None, error=float(k)) for k in range(30)]  # type: ignore[arg-type]
    made = summed(given, {"a": 1}, error="nll").sources["a"]
    assert made.error_rate is None
    assert made.mean_error == made.mean_nll == 14.5
    mixed = [*given[1:], score("a", 0, nll=0.0, correct=False, error=0.0)]
    assert summed(mixed, {"a": 1}, error="nll").sources["a"].error_rate is None


def test_scores_and_pools_speak_of_the_same_sources() -> None:
    with pytest.raises(
        AllocationError,
        match="the scores and the pool sizes must name the same sources, but 'b' is missing from the scores",
    ):
        summed(scores("a"), {"a": 1, "b": 1})
    with pytest.raises(AllocationError, match=r"'b' is missing from the pool sizes$"):
        summed(scores("a") + scores("b"), {"a": 1})


def test_nlls_too_large_to_sum_are_refused_by_source() -> None:
    huge = [score("b", number, nll=1e308) for number in range(40)]
    with pytest.raises(AllocationError, match=r"^the NLLs of 'b' sum to more than the largest double; .* is 1e\+308"):
        summed(huge, {"b": 1})


def test_one_score_is_too_few() -> None:
    with pytest.raises(ScoringError, match=r"fewer than 2 calibration scores, too few for a spread: 'b'$"):
        summed(scores("a") + scores("b", 1), {"a": 1, "b": 1})


def test_few_scores_are_warned_of() -> None:
    expected = r"fewer than 30 calibration records, so their bootstrap sd says little: b \(29\)$"
    with pytest.warns(SmallCalibrationWarning, match=expected):
        summed(scores("a", 30) + scores("b", 29), {"a": 1, "b": 1})
    with pytest.warns(SmallCalibrationWarning, match=r"a \(2\)$"):
        summed(scores("a", 2), {"a": 1})

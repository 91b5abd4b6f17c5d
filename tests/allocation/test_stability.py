"""Stability across splits (paper 3.4), orders and intervals over replicates, and grids."""

from __future__ import annotations

import re
from typing import Any

import pytest
from scipy.stats import pearsonr, spearmanr

from calibudget.allocation.plan import AllocationRequest, plan, quota_intervals
from calibudget.allocation.stability import pearson, stability, what_if
from calibudget.allocation.utility_factors import doubled_ranks
from calibudget.records import Exponents
from tests.conftest import statistics_of

SPLITS = [
    {"a": 100, "b": 205, "c": 50, "d": 50},
    {"b": 200, "a": 103, "c": 48, "d": 54},
    {"a": 99, "b": 201, "c": 53, "d": 52},
]


def test_the_papers_audit() -> None:
    made = stability(SPLITS)
    assert made.splits == 3
    assert made.largest_range == 5
    spreads = [2.081665999466133, 2.6457513110645907, 2.516611478423583, 2.0]
    assert made.mean_quota_sd == pytest.approx(sum(spreads) / 4, rel=1e-12)
    rows = [[split[k] for k in "abcd"] for split in SPLITS]
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert made.smallest_pearson == pytest.approx(min(pearsonr(rows[i], rows[j])[0] for i, j in pairs), rel=1e-12)
    assert made.smallest_spearman == pytest.approx(min(spearmanr(rows[i], rows[j])[0] for i, j in pairs), rel=1e-12)


def test_equal_and_reversed_orders_are_exactly_one_and_minus_one() -> None:
    made = stability([{"a": 1, "b": 20, "c": 300}, {"a": 2, "b": 21, "c": 900}])
    assert made.smallest_spearman == 1.0
    assert 0.9 < made.smallest_pearson < 1.0  # type: ignore[operator]
    same = stability([{"a": 3, "b": 7, "c": 11}] * 2)
    assert (same.smallest_pearson, same.mean_quota_sd, same.largest_range) == (1.0, 0.0, 0)
    assert stability([{"a": 1, "b": 2}, {"a": 2, "b": 1}]).smallest_spearman == -1.0


def test_equal_quotas_share_the_mean_of_their_ranks() -> None:
    assert doubled_ranks([5, 5, 1]) == [5, 5, 2]
    assert doubled_ranks([7]) == [2]
    first, second = {"a": 5, "b": 5, "c": 1, "d": 9}, {"a": 4, "b": 6, "c": 6, "d": 7}
    expected = spearmanr(list(first.values()), list(second.values()))[0]
    assert stability([first, second]).smallest_spearman == pytest.approx(expected, rel=1e-12)


def test_proportional_quotas_correlate_exactly() -> None:
    for scale in range(2, 60):
        first = {"a": 1, "b": 5, "c": 13, "d": 700}
        assert stability([first, {k: scale * q + 3 for k, q in first.items()}]).smallest_pearson == 1.0


def test_quotas_that_do_not_vary_have_no_correlation() -> None:
    made = stability([{"a": 5, "b": 5}, {"a": 4, "b": 6}])
    assert (made.smallest_pearson, made.smallest_spearman) == (None, None)
    assert (made.largest_range, made.splits) == (1, 2)


def test_intervals_are_inverted_cdf_quantiles(subtests: pytest.Subtests) -> None:
    """The smallest value with at least 2.5% (97.5%) of the replicates at or below it."""
    for replicates, low, high in [
        (1, 1, 1),
        (2, 1, 2),
        (39, 1, 39),
        (40, 1, 39),
        (41, 2, 40),
        (200, 5, 195),
        (1_000, 25, 975),
    ]:
        with subtests.test(replicates=replicates):
            rows = [[k, 2 * k] for k in range(replicates, 0, -1)]
            assert quota_intervals(rows) == [(low, high), (2 * low, 2 * high)]


def test_a_grid_shows_every_combination_and_why_some_fail() -> None:
    pools = {"a": 100, "b": 400}
    points = what_if(
        AllocationRequest(policy="floor-sqrt", pool_sizes=pools, floors={"b": 1}, budget=0),
        budgets=[100, 600],
        common_floors=[0, "50% of budget"],
    )
    assert [(p.budget, p.floor) for p in points] == [(100, 0), (100, "50% of budget"), (600, 0), (600, "50% of budget")]
    assert (
        points[0].quotas
        == plan(AllocationRequest(policy="floor-sqrt", pool_sizes=pools, budget=100, floors={"b": 1})).quotas
    )
    assert (points[0].residual_budget, points[0].refusal) == (99, None)
    assert points[1].quotas["a"] >= 50  # type: ignore[index]
    assert points[1].residual_budget == 49
    assert (points[2].quotas, points[2].residual_budget) == (None, None)
    assert re.match("the budget 600 is 100 above all pools together", points[2].refusal)  # type: ignore[arg-type]


def test_a_grid_of_exponents() -> None:
    measured = statistics_of({"a": {"bootstrap_sd": 0.5}, "b": {"bootstrap_sd": 0.0}}, error="nll", resamples=1)
    inputs: dict[str, Any] = {"pool_sizes": {"a": 90, "b": 90}, "statistics": measured}
    powers = [Exponents(), Exponents(reliability=0.0)]
    first, second = what_if(
        AllocationRequest(policy="calibudget", **inputs, budget=0), budgets=[100], common_floors=[0], exponents=powers
    )
    assert (first.exponents, second.exponents) == tuple(powers)
    assert first.quotas == {"a": 40, "b": 60}
    assert second.quotas == {"a": 50, "b": 50}


def test_correlations_of_huge_quotas_are_finite() -> None:
    first, second = {"a": 10**200, "b": 10**201, "c": 1}, {"a": 10**300, "b": 10**299, "c": 2}
    rows = [[float(value) / 1e200 for value in first.values()], [float(value) / 1e300 for value in second.values()]]
    assert stability([first, second]).smallest_pearson == pytest.approx(pearsonr(*rows)[0], rel=1e-9)


def test_quotas_without_correlation_have_one_of_plain_zero() -> None:
    assert repr(pearson([1, 0, 1, 0], [1, 1, 0, 0])) == "0.0"

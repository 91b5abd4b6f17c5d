"""Search by exchanges, curves through many runs' means, and weighted means."""

from __future__ import annotations

import math
from typing import Any

import pytest

from calibudget.errors import AllocationError
from testbed.rivals.least_nll import minimise_nll, predict_nll
from testbed.rivals.records import Curve
from testbed.rivals.searching import fit_curves_to_means, search_quotas, weighted_mean

CURVES = {
    "a": Curve(exposure=250, level=1.0, slope=0.2),
    "b": Curve(exposure=250, level=0.5, slope=0.1, exponent=0.5),
    "c": Curve(exposure=250, level=0.9, slope=0.05),
}


def test_of_separable_curves_it_finds_the_minimum() -> None:
    lower, upper = {"a": 0, "b": 30, "c": 100}, {"a": 300, "b": 900, "c": 900}
    start = {"a": 20, "b": 30, "c": 900}
    found = search_quotas(lambda quotas: predict_nll(CURVES, quotas), start, lower=lower, upper=upper)
    assert found == minimise_nll(CURVES, 950, lower=lower, upper=upper)


def test_sources_that_depend_on_each_other_are_weighed_together() -> None:
    # Only the product counts: the best parts are equal.
    found = search_quotas(lambda quotas: -math.prod(quotas.values()), {"a": 70, "b": 19, "c": 1})
    assert found == {"a": 30, "b": 30, "c": 30}


def test_a_start_outside_its_bounds_is_refused() -> None:
    with pytest.raises(AllocationError, match="the start gives 'b' 5 units, outside its bounds"):
        search_quotas(len, {"a": 5, "b": 5}, upper={"a": 10, "b": 4})


def test_curves_through_means() -> None:
    exposures = [100, 500, 250, 1_000, 250]
    points = {x: (exposures, [curve.nll(e) for e in exposures]) for x, curve in CURVES.items()}
    fitted = fit_curves_to_means(points, form="power")
    for label, curve in CURVES.items():
        assert fitted[label].exponent == pytest.approx(curve.exponent, abs=1e-9)
        assert fitted[label].nll(700) == pytest.approx(curve.nll(700), rel=1e-9)
    straight = fit_curves_to_means(points)
    assert straight["b"].exponent == 0.0
    rising = fit_curves_to_means({"a": ([10, 20], [1.0, 2.0])})["a"]
    assert (rising.slope, rising.nll(5)) == (0.0, 1.5)


@pytest.mark.parametrize(
    "points", [([10], [1.0]), ([10, 10], [1.0, 2.0]), ([0, 10], [1.0, 2.0]), ([1, 2], [1, math.nan])]
)
def test_points_that_no_curve_goes_through_are_refused(points: Any) -> None:
    with pytest.raises(AllocationError, match="'a' needs finite NLLs at two or more exposures"):
        fit_curves_to_means({"a": points})


def test_weighted_means() -> None:
    assert weighted_mean({"a": 1.0, "b": 3.0}) == 2.0
    assert weighted_mean({"a": 1.0, "b": math.inf}, {"a": 2, "b": 0}) == 1.0
    assert weighted_mean({"a": 1.0, "b": 3.0}, {"a": 1, "b": 3}) == 2.5
    for weights in (None, {"a": 1, "b": 1}):
        with pytest.raises(
            AllocationError, match=r"values sum to more than the largest double; the largest is 1e\+308"
        ):
            weighted_mean({"a": 1e308, "b": 1e308}, weights)
    with pytest.raises(AllocationError, match=r"the weights sum to more than the largest double"):
        weighted_mean({"a": 0.1, "b": 0.1}, {"a": 1e308, "b": 1e308})
    with pytest.raises(AllocationError, match="all weights are 0"):
        weighted_mean({"a": 1.0}, {"a": 0.0})

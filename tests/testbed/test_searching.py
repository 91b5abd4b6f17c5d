"""Search by exchanges, curves through many runs' means, and weighted means."""

from __future__ import annotations

import pytest

from testbed.rivals.least_nll import minimise_nll, predict_nll
from testbed.rivals.records import Curve
from testbed.rivals.searching import fit_curves_to_means, search_quotas

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

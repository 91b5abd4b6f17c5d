"""Curves through finished trainings, and the best quotas by them, against every other way to spend the budget."""

from __future__ import annotations

from itertools import product

import pytest

from testbed.curves import Curve, best_quotas, fit_curve, predicted

CURVES = {
    "a": Curve(level=1.8, fall=0.3, exponent=0.0),
    "b": Curve(level=0.2, fall=2.0, exponent=0.5),
    "c": Curve(level=0.9, fall=0.0, exponent=0.0),
}


def test_the_curve_that_made_the_losses_is_found_again() -> None:
    quotas = [100, 500, 250, 1_000, 250]
    for curve in CURVES.values():
        fitted = fit_curve(quotas, [curve.nll(quota) for quota in quotas])
        assert fitted.exponent == (curve.exponent if curve.fall else fitted.exponent)
        assert fitted.nll(700) == pytest.approx(curve.nll(700), rel=1e-9)
    rising = fit_curve([10, 20], [1.0, 2.0])
    assert (rising.fall, rising.nll(5)) == (0.0, 1.5)


def test_no_other_quotas_within_the_bounds_are_predicted_lower() -> None:
    lower, upper = {"a": 1, "b": 5, "c": 3}, {"a": 20, "b": 40, "c": 30}
    every = [
        dict(zip("abc", quotas, strict=True))
        for quotas in product(*(range(lower[label], upper[label] + 1) for label in "abc"))
        if sum(quotas) == 40
    ]
    found = best_quotas(CURVES, {"a": 5, "b": 5, "c": 30}, lower=lower, upper=upper)
    assert predicted(CURVES, found) == min(predicted(CURVES, quotas) for quotas in every)
    assert found in every

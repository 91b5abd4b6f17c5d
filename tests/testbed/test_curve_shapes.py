"""Shapes against closed forms, and against least squares done another way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from testbed.rivals.curve_shapes import EXPONENTS, curvature_weights, shape
from testbed.rivals.records import Curve


def test_two_exposures_a_doubling_apart_differ_by_the_slope() -> None:
    one = shape((125, 250))
    assert one.slope_weights == (1.0, -1.0)
    assert one.reach == -0.5
    assert one.misfit([0.9, 0.7]) == pytest.approx(0.0, abs=1e-30)


def test_three_doublings_weigh_the_ends() -> None:
    assert shape((62, 124, 248)).slope_weights == (0.5, 0.0, -0.5)


@pytest.mark.parametrize("exponent", [0.0, 0.03125, 1.0, 4.0])
@pytest.mark.parametrize("exposures", [(1, 2), (60, 125, 250), (3, 40, 41, 9_000)])
def test_weights_are_least_squares(exposures: Any, exponent: float) -> None:
    one = shape(exposures, exponent)
    means = np.array([1.0, 0.7, 0.65, 0.1])[: len(exposures)]
    ratios = np.log(np.array(exposures) / exposures[-1])
    heights = (1 - np.exp(-exponent * ratios)) / exponent if exponent else ratios
    (level, fall), residual, *_ = np.linalg.lstsq(np.stack([np.ones(len(means)), heights], axis=1), means, rcond=None)
    slope = one.slope(means)  # type: ignore[arg-type]
    assert slope == pytest.approx(-fall * math.log(2), rel=1e-9)
    assert one.level(means, slope) == pytest.approx(level, rel=1e-9)  # type: ignore[arg-type]
    if len(residual):
        assert one.misfit(means) == pytest.approx(residual[0], rel=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("exponent", [0.0, EXPONENTS[0], 0.5, EXPONENTS[-1]])
def test_a_curves_own_values_give_it_back(exponent: Any) -> None:
    curve = Curve(exposure=250, level=0.8, slope=0.1, exponent=exponent)
    one = shape((60, 125, 250), exponent)
    means = [curve.nll(exposure) for exposure in (60, 125, 250)]
    assert one.slope(means) == pytest.approx(0.1, rel=1e-9)
    assert one.level(means, 0.1) == pytest.approx(0.8, rel=1e-9)
    assert one.misfit(means) < 1e-25


def test_curvature_tells_a_bend_from_a_line() -> None:
    exposures = (60, 125, 250)
    weights = curvature_weights(exposures)
    line = [Curve(exposure=250, level=0.8, slope=0.1).nll(exposure) for exposure in exposures]
    bent = [Curve(exposure=250, level=0.8, slope=0.1, exponent=1.0).nll(exposure) for exposure in exposures]
    assert math.fsum(w * m for w, m in zip(weights, line, strict=True)) == pytest.approx(0.0, abs=1e-12)
    assert math.fsum(w * m for w, m in zip(weights, bent, strict=True)) > 0.01
    assert math.fsum(weights) == pytest.approx(0.0, abs=1e-12)

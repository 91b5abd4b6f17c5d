"""Shapes against closed forms, and against least squares done another way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from testbed.rivals.curve_shapes import shape


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

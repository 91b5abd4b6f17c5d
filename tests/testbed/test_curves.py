"""Curves from warm-ups: planted ones come back, and what can't be used is refused or warned of."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.rivals.curves import WarmUps, fit_curves
from testbed.rivals.records import Curve


def exactly(curve: Any, exposures: Any, records: int = 40) -> Any:
    """Records without noise but for what they differ by."""
    return WarmUps(exposures=exposures, nll=[[curve.nll(e) + k / records for k in range(records)] for e in exposures])


def steep(slope: Any, exponent: float = 0.0) -> Any:
    return Curve(exposure=250, level=1.0, slope=slope, exponent=exponent)


def test_exact_measurements_give_the_planted_curves() -> None:
    slopes = {"a": 0.2, "b": 0.05}
    fits = fit_curves({x: exactly(steep(s), (62, 125, 250)) for x, s in slopes.items()})
    for label, slope in slopes.items():
        fit = fits.sources[label]
        assert fit.raw_slope == pytest.approx(slope, rel=1e-12)
        assert fit.slope == pytest.approx(slope, rel=1e-9)
        assert fit.curve.nll(1_000) == pytest.approx(steep(slope).nll(1_000) + 39 / 80, rel=1e-9)
        assert fit.verdict == "falling"
        assert fit.curve.exponent == 0.0
    assert fits.slopes == {x: fits.sources[x].slope for x in slopes}

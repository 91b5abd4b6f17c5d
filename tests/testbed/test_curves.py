"""Curves from warm-ups: planted ones come back, and what can't be used is refused or warned of."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.rivals.curves import CurveWarning, WarmUps, fit_curves
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


@pytest.mark.parametrize("exponent", [0.25, 1.0, 2.0])
def test_three_points_carry_a_power_law(exponent: float) -> None:
    warm_ups = {"a": exactly(steep(0.1, exponent), (62, 125, 250)), "b": exactly(steep(0.2), (62, 125, 250))}
    fits = fit_curves(warm_ups, form="power")
    assert fits.sources["a"].curve.exponent == exponent
    assert fits.sources["a"].raw_slope == pytest.approx(0.1, rel=1e-9)
    assert fits.sources["b"].curve.exponent == 0.0
    assert fit_curves(warm_ups).sources["a"].curve.exponent == 0.0


def test_golden_slopes() -> None:
    nll = [[1.25, 0.5, 2.0, 0.75], [1.0, 0.25, 1.5, 0.75], [0.75, 0.125, 1.25, 0.5]]
    with pytest.warns(CurveWarning, match="fewer than 30"):
        fit = fit_curves({"a": WarmUps(exposures=[100, 200, 400], nll=nll)}, seed=7).sources["a"]
    # The middle exposure has no weight: half the fall from first to last, (1.125 - 0.65625) / 2.
    assert fit.raw_slope == 0.234375
    assert fit.slope_sd == pytest.approx(0.0533695, rel=1e-5)
    assert fit.interval == (0.15625, 0.328125)
    assert fit.records_needed == 1

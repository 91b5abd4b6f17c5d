"""Curves from warm-ups: planted ones come back, and what can't be used is refused or warned of."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from testbed.rivals.curves import CurveWarning, WarmUps, fit_curves
from testbed.rivals.records import Curve


def planted(curve: Any, exposures: Any, rng: Any, records: int = 100, noise: float = 0.3) -> Any:
    """NLLs of records that lie around a curve: records differ, and each differs from warm-up to warm-up."""
    levels = [rng.gammavariate(2.0, 0.3) for _ in range(records)]
    centre = sum(levels) / records
    rows = []
    for exposure in exposures:
        errors = [rng.gauss(0.0, noise) for _ in range(records)]
        rows.append([curve.nll(exposure) + level - centre + error for level, error in zip(levels, errors, strict=True)])
    return WarmUps(exposures=exposures, nll=rows)


def exactly(curve: Any, exposures: Any, records: int = 40) -> Any:
    """Records without noise but for what they differ by."""
    return WarmUps(exposures=exposures, nll=[[curve.nll(e) + k / records for k in range(records)] for e in exposures])


def steep(slope: Any, exponent: float = 0.0) -> Any:
    return Curve(exposure=250, level=1.0, slope=slope, exponent=exponent)


@pytest.fixture
def rng() -> Any:
    return random.Random(12)  # noqa: S311


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


def test_slopes_that_noise_explains_come_together(rng: Any) -> None:
    with pytest.warns(CurveWarning, match="can't be told from 0"):
        fits = fit_curves({x: planted(steep(0.1), (125, 250), rng) for x in "abcdef"})
    raw = [fit.raw_slope for fit in fits.sources.values()]
    assert max(fits.slopes.values()) - min(fits.slopes.values()) < 0.5 * (max(raw) - min(raw))
    assert fit_curves({x: exactly(steep(0.1), (125, 250)) for x in "ab"}, shrink=False).prior is None


def test_intervals_hold_the_slope_and_widen_with_runs(rng: Any) -> None:
    warm_ups = {x: planted(steep(s), (125, 250), rng, records=400) for x, s in {"a": 0.2, "b": 0.1}.items()}
    calm = fit_curves(warm_ups)
    with pytest.warns(CurveWarning, match="can't be told from 0 at two standard deviations: 'b'"):
        wild = fit_curves(warm_ups, run_sd=0.05)
    for label, slope in {"a": 0.2, "b": 0.1}.items():
        low, high = calm.sources[label].interval
        assert low < slope < high
        wider = wild.sources[label].interval
        assert wider[1] - wider[0] > high - low
        assert wild.sources[label].slope_sd == pytest.approx(
            math.hypot(calm.sources[label].slope_sd, 0.05 * math.sqrt(2))
        )


def test_golden_slopes() -> None:
    nll = [[1.25, 0.5, 2.0, 0.75], [1.0, 0.25, 1.5, 0.75], [0.75, 0.125, 1.25, 0.5]]
    with pytest.warns(CurveWarning, match="fewer than 30"):
        fit = fit_curves({"a": WarmUps(exposures=[100, 200, 400], nll=nll)}, seed=7).sources["a"]
    # The middle exposure has no weight: half the fall from first to last, (1.125 - 0.65625) / 2.
    assert fit.raw_slope == 0.234375
    assert fit.slope_sd == pytest.approx(0.0533695, rel=1e-5)
    assert fit.interval == (0.15625, 0.328125)
    assert fit.records_needed == 1

"""Curves from warm-ups: planted ones come back, and what can't be used is refused or warned of."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import pytest

from calibudget.errors import AllocationError, InputTypeError
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


def test_two_points_carry_no_power_law() -> None:
    fits = fit_curves({"a": exactly(steep(0.1, 1.0), (125, 250))}, form="power")
    assert fits.sources["a"].curve.exponent == 0.0


def test_a_bend_within_the_noise_is_no_power_law(rng: Any) -> None:
    fits = fit_curves({"a": planted(steep(0.2, 0.05), (62, 125, 250), rng)}, form="power")
    assert fits.sources["a"].curve.exponent == 0.0


def test_exposures_need_not_double() -> None:
    fits = fit_curves({"a": exactly(steep(0.1), (30, 200)), "b": exactly(steep(0.1), (10, 11, 500))})
    assert fits.slopes == pytest.approx({"a": 0.1, "b": 0.1})


def test_slopes_that_noise_explains_come_together(rng: Any) -> None:
    with pytest.warns(CurveWarning, match="can't be told from 0"):
        fits = fit_curves({x: planted(steep(0.1), (125, 250), rng) for x in "abcdef"})
    raw = [fit.raw_slope for fit in fits.sources.values()]
    assert max(fits.slopes.values()) - min(fits.slopes.values()) < 0.5 * (max(raw) - min(raw))
    assert fit_curves({x: exactly(steep(0.1), (125, 250)) for x in "ab"}, shrink=False).prior is None


def test_without_noise_nothing_is_shrunk() -> None:
    warm_ups = {x: exactly(steep(s), (125, 250)) for x, s in {"a": 0.3, "b": 0.1, "c": 0.02}.items()}
    shrunk, plain = fit_curves(warm_ups).slopes, fit_curves(warm_ups, shrink=False).slopes
    assert shrunk == pytest.approx(plain, rel=1e-9)


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


def test_the_seed_and_the_label_choose_the_draws(rng: Any) -> None:
    warm_ups = {"a": planted(steep(0.2), (125, 250), rng), "b": planted(steep(0.3), (125, 250), rng)}
    first = fit_curves(warm_ups, seed=1)
    assert first.sources == fit_curves(dict(reversed(warm_ups.items())), seed=1).sources
    assert list(first.sources) == ["a", "b"]
    assert first.sources["a"].interval == fit_curves({"a": warm_ups["a"]}, seed=1).sources["a"].interval
    assert first.sources["a"].interval != fit_curves(warm_ups, seed=2).sources["a"].interval
    twins = fit_curves({"a": warm_ups["a"], "b": warm_ups["a"]}, seed=1)
    assert twins.sources["a"].interval != twins.sources["b"].interval


def test_golden_slopes() -> None:
    nll = [[1.25, 0.5, 2.0, 0.75], [1.0, 0.25, 1.5, 0.75], [0.75, 0.125, 1.25, 0.5]]
    with pytest.warns(CurveWarning, match="fewer than 30"):
        fit = fit_curves({"a": WarmUps(exposures=[100, 200, 400], nll=nll)}, seed=7).sources["a"]
    # The middle exposure has no weight: half the fall from first to last, (1.125 - 0.65625) / 2.
    assert fit.raw_slope == 0.234375
    assert fit.slope_sd == pytest.approx(0.0533695, rel=1e-5)
    assert fit.interval == (0.15625, 0.328125)
    assert fit.records_needed == 1


def rising(rng: Any) -> Any:
    return {"up": planted(Curve(exposure=250, level=1.0, slope=-0.3), (125, 250), rng)}


def test_a_rising_curve_counts_as_flat_and_is_said(rng: Any) -> None:
    both = {"down": planted(steep(0.3), (125, 250), rng), **rising(rng)}
    with pytest.warns(CurveWarning, match="rises with the exposure, so that the slope counts as 0: 'up'"):
        fits = fit_curves(both)
    assert fits.slopes["up"] == 0.0
    assert fits.sources["up"].raw_slope < 0
    assert fits.sources["up"].verdict == "rising"
    assert fits.sources["up"].records_needed is None
    assert fits.sources["up"].curve.nll(9_999) == fits.sources["up"].curve.level


def test_a_flat_curve_is_said(rng: Any) -> None:
    with pytest.warns(CurveWarning, match="can't be told from 0 at two standard deviations: 'still'"):
        fits = fit_curves({"down": planted(steep(0.3), (125, 250), rng), "still": planted(steep(0.0), (125, 250), rng)})
    assert fits.sources["still"].verdict == "flat"


def test_curves_that_all_rise_are_refused(rng: Any) -> None:
    with pytest.raises(AllocationError, match="no source's calibration NLL falls"):
        fit_curves(rising(rng))


def test_a_split_too_small_says_how_many_records_would_do() -> None:
    after = [[0.95 + size * (-1) ** k for k in range(8)] for size in (0.5, 0.6)]
    few = {x: WarmUps(exposures=(125, 250), nll=[[1.0] * 8, row]) for x, row in zip("ab", after, strict=True)}
    with pytest.raises(AllocationError, match=r"no slope can be told from 0.*about ([\d,]+) calibration records of it"):
        fit_curves(few)
    with (
        pytest.warns(CurveWarning, match="fewer than 30 calibration records"),
        pytest.warns(CurveWarning, match="can't be told from 0 at two standard deviations: 'a', 'b'"),
    ):
        fits = fit_curves(few, require_visible=False)
    # The records' slopes have the variance 8/7 * 0.25: four times that over 0.05**2 makes two deviations 0.05.
    assert fits.sources["a"].records_needed == math.floor(8 / 7 / 0.05**2) + 1


def test_as_many_records_as_it_says_make_a_slope_visible(rng: Any) -> None:
    small = planted(steep(0.05), (125, 250), rng, records=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fit_curves({"a": small}, require_visible=False).sources["a"]
    copies = -(-fit.records_needed // 60)  # type: ignore[operator]
    many = WarmUps(exposures=small.exposures, nll=[row * copies for row in small.nll])
    assert fit_curves({"a": many}).sources["a"].verdict == "falling"


@pytest.mark.parametrize(
    ("exposures", "nll", "message"),
    [
        ([250], [[1.0, 2.0]], "a curve needs two or more, ascending"),
        ([250, 125], [[1.0, 2.0]] * 2, "ascending"),
        ([125, 125], [[1.0, 2.0]] * 2, "ascending"),
        ([0, 125], [[1.0, 2.0]] * 2, "from 1 on"),
        ([125, 250], [[1.0, 2.0]], "2 records for 2 exposures"),
        ([125, 250], [[1.0, 2.0], [1.0]], "2, 1 records for 2 exposures"),
        ([125, 250], [[1.0], [1.0]], "needs at least 2"),
        ([125, 250], [[1.0, math.nan], [1.0, 1.0]], "isn't finite"),
    ],
)
def test_measurements_that_cant_be_used_are_refused(exposures: Any, nll: Any, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        fit_curves({"a": WarmUps(exposures=exposures, nll=nll)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "cubic"}, "form is log-linear or power"),
        ({"run_sd": -1.0}, "run_sd must be finite"),
        ({"run_sd": math.nan}, "run_sd must be finite"),
        ({"resamples": 0}, "resamples must be from 1 to 1,000,000, not 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: Any, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        fit_curves({"a": exactly(steep(0.1), (125, 250))}, **options)


def test_no_sources_and_fractions_are_refused() -> None:
    with pytest.raises(AllocationError, match="no sources"):
        fit_curves({})
    with pytest.raises(InputTypeError, match="an exposure of 'a' must be an integer"):
        fit_curves({"a": WarmUps(exposures=[125.0, 250.0], nll=[[1.0, 2.0], [1.0, 1.0]])})  # type: ignore[list-item]

"""The exact optimiser against every quota vector there is, and beside the policy of the contract."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from calibudget.allocation.quotas import apportion
from calibudget.errors import AllocationError, InputTypeError
from testbed.rivals.least_nll import minimise_nll, predict_nll
from testbed.rivals.records import Curve

DIGITS = Context(prec=60)


def curve(slope: Any, exponent: float = 0.0, exposure: int = 250, level: float = 1.0) -> Any:
    return Curve(exposure=exposure, level=level, slope=slope, exponent=exponent)


def exact_loss(one: Any, quota: Any) -> Any:
    """What the quota leaves of the NLL but for the level, times ln 2, to sixty digits."""
    if not one.slope:
        return Decimal(0)
    log = DIGITS.ln(DIGITS.divide(Decimal(quota), Decimal(one.exposure)))
    if one.exponent:
        power = DIGITS.exp(DIGITS.multiply(-Decimal(one.exponent), log))
        log = DIGITS.divide(DIGITS.subtract(Decimal(1), power), Decimal(one.exponent))
    return DIGITS.multiply(-Decimal(one.slope), log)


def best_of_all(curves: Any, budget: Any, lower: Any, upper: Any, weights: Any) -> Any:
    """The least loss over every quota vector within the bounds."""
    labels = list(curves)
    losses = [
        {q: Decimal(weights[x]) * exact_loss(curves[x], q) for q in range(lower[x], upper[x] + 1)} for x in labels
    ]
    return min(
        sum(loss[q] for loss, q in zip(losses, quotas, strict=True))
        for quotas in itertools.product(*losses)
        if sum(quotas) == budget
    )


def random_problem(rng: Any, exponents: Any) -> Any:
    labels = "abcd"[: rng.randint(1, 4)]
    curves = {
        x: curve(rng.choice([0.0, 1.0, 2.0, 0.1, 0.3, rng.random()]), rng.choice(exponents), rng.choice([1, 2, 5]))
        for x in labels
    }
    upper = {x: rng.randint(1, 6) for x in labels}
    lower = {x: rng.randint(1, most) for x, most in upper.items()}
    weights = {x: rng.choice([1, 1, 2, 0, 0.5]) for x in labels}
    weights["a"] = weights["a"] or 1
    return curves, rng.randint(sum(lower.values()), sum(upper.values())), lower, upper, weights


@pytest.mark.parametrize("exponents", [(0.0,), (0.0, 0.5, 1.0, 2.0)])
@pytest.mark.parametrize("count", [40, pytest.param(20_000, marks=pytest.mark.full)])
def test_nothing_beats_it(exponents: Any, count: int) -> None:
    rng = random.Random(count)  # noqa: S311
    for _ in range(count):
        curves, budget, lower, upper, weights = random_problem(rng, exponents)
        quotas = minimise_nll(curves, budget, lower=lower, upper=upper, weights=weights)
        assert sum(quotas.values()) == budget
        assert all(lower[x] <= quotas[x] <= upper[x] for x in curves)
        with localcontext(DIGITS):
            made = sum(Decimal(weights[x]) * exact_loss(curves[x], quotas[x]) for x in curves)
            assert made - best_of_all(curves, budget, lower, upper, weights) < Decimal("1e-50")


@pytest.mark.parametrize(("size", "budget"), [(8, 4_000), pytest.param(3_000, 10**6, marks=pytest.mark.slow)])
def test_log_linear_quotas_lie_within_a_unit_of_the_policys(size: int, budget: Any) -> None:
    # The policy of the contract rounds shares proportional to the slopes by largest remainders, the optimiser goes by
    # the gains of whole units: both round the same real-valued optimum.
    rng = random.Random(size)  # noqa: S311
    slopes = {f"s{k:04d}": rng.uniform(0.005, 0.3) for k in range(size)}
    upper = {x: rng.randint(300, 4 * budget // size + 300) for x in slopes}
    lower = dict.fromkeys(slopes, budget // size // 4)
    best = minimise_nll({x: curve(s) for x, s in slopes.items()}, budget, lower=lower, upper=upper)
    rounded = apportion(slopes, budget, lower=lower, upper=upper).quotas
    assert max(abs(best[x] - rounded[x]) for x in slopes) <= 1
    curves = {x: curve(s) for x, s in slopes.items()}
    assert 0 <= predict_nll(curves, rounded) - predict_nll(curves, best) < 1e-5


def test_units_taken_come_before_units_left() -> None:
    rng = random.Random(3)  # noqa: S311
    curves = {f"s{k}": curve(rng.choice([0.1, 0.2, 0.3]), rng.choice([0.0, 0.25])) for k in range(60)}
    quotas = minimise_nll(curves, 9_001, upper=dict.fromkeys(curves, 400))
    gains = {x: (lambda q, c=c: c.nll(q) - c.nll(q + 1)) for x, c in curves.items()}
    worst_taken = min(gains[x](q - 1) for x, q in quotas.items() if q)
    best_left = max(gains[x](q) for x, q in quotas.items() if q < 400)
    assert best_left <= worst_taken * (1 + 1e-9)


def test_ties_go_to_the_first_label() -> None:
    assert minimise_nll({x: curve(0.1) for x in "abc"}, 8) == {"a": 3, "b": 3, "c": 2}


def test_flat_curves_stay_at_their_floor_until_the_others_are_full() -> None:
    curves = {"flat": curve(0.0), "still": curve(0.0), "steep": curve(0.2)}
    lower, upper = {"flat": 5, "still": 0, "steep": 5}, {"flat": 100, "still": 100, "steep": 50}
    assert minimise_nll(curves, 40, lower=lower, upper=upper) == {"flat": 5, "still": 0, "steep": 35}
    assert minimise_nll(curves, 76, lower=lower, upper=upper) == {"flat": 16, "still": 10, "steep": 50}


def test_weights_scale_slopes() -> None:
    curves = {"a": curve(0.1), "b": curve(0.1)}
    assert minimise_nll(curves, 400, weights={"a": 3, "b": 1}) == {"a": 300, "b": 100}
    assert minimise_nll(curves, 400, weights={"a": Fraction(1, 3), "b": 0}, lower={"a": 0, "b": 7})["b"] == 7


def test_scaling_and_order_change_nothing() -> None:
    rng = random.Random(8)  # noqa: S311
    slopes = {x: rng.random() for x in "hgfedcba"}
    plain = minimise_nll({x: curve(s) for x, s in slopes.items()}, 777)
    scaled = minimise_nll({x: curve(s * 2.0**-900) for x, s in sorted(slopes.items())}, 777)
    assert plain == scaled
    assert list(plain) == sorted(slopes)


def test_a_steeper_floor_makes_a_power_law_stop_earlier() -> None:
    curves = {"power": curve(0.1, 1.0), "straight": curve(0.1)}
    quotas = minimise_nll(curves, 2_000)
    assert quotas["power"] < quotas["straight"]
    # At the optimum both gain the same: 0.1 * 250 / q**2 = 0.1 / p.
    assert math.isclose(250 / quotas["power"] ** 2, 1 / quotas["straight"], rel_tol=1e-2)


def test_prediction_is_the_mean_of_the_curves() -> None:
    curves = {"a": curve(0.1, level=1.0), "b": curve(0.2, level=0.5)}
    quotas = {"a": 500, "b": 125}
    assert predict_nll(curves, quotas) == pytest.approx((0.9 + 0.7) / 2)
    assert predict_nll(curves, quotas, weights={"a": 1, "b": 3}) == pytest.approx((0.9 + 3 * 0.7) / 4)
    assert predict_nll(curves, {"a": 0, "b": 125}) == math.inf
    assert predict_nll(curves, {"a": 0, "b": 125}, weights={"a": 0, "b": 1}) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("curves", "more", "message"),
    [
        ({"a": curve(-0.1)}, {}, "slope of 'a' must not be negative"),
        ({"a": curve(math.nan)}, {}, "slope of 'a' must be finite"),
        ({"a": curve(0.1, 17.0)}, {}, "an exponent lies between 0 and 16"),
        ({"a": curve(0.1, math.nan)}, {}, "the exponent of 'a' must be finite"),
        ({"a": curve(0.1, exposure=0)}, {}, "an exposure is at least 1"),
        ({"a": curve(0.1)}, {"weights": {"b": 1}}, "weights and curves must name the same sources"),
        ({"a": curve(0.1)}, {"weights": {"a": 0}}, "all weights are 0"),
        ({"a": curve(0.1)}, {"upper": {"a": 3}}, "7 short of the budget 10"),
        ({"a": curve(0.1)}, {"lower": {"a": 11}}, "1 above the budget 10"),
    ],
)
def test_what_no_quotas_satisfy_is_refused(curves: Any, more: Any, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        minimise_nll(curves, 10, **more)


def test_a_budget_is_a_whole_number() -> None:
    with pytest.raises(InputTypeError, match=r"the budget must be an integer, not 10\.0"):
        minimise_nll({"a": curve(0.1)}, 10.0)  # type: ignore[arg-type]

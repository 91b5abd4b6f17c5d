"""The exact optimiser against every quota vector there is, and beside the policy of the contract."""

from __future__ import annotations

import itertools
import random
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest

from calibudget.allocation.quotas import apportion
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

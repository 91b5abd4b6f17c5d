"""UniMax and Slice Tuner: known answers, and optima against brute force."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from calibudget.errors import AllocationError
from testbed.rivals.comparators import PowerLaw, fit_power_law, imbalance, slice_tuner_round, unimax_quotas


def test_unimax_gives_equal_quotas_up_to_its_epochs() -> None:
    # The five languages of its published package's own example, in units of 1,000 characters and four epochs.
    sizes = {"swe": 179_955_884, "fas": 184_595_788, "ekk": 42_541_080, "isl": 10_027_573, "fao": 549_707}
    quotas = unimax_quotas(sizes, 250_000_000, max_epochs=4)
    assert (quotas["fao"], quotas["isl"]) == (4 * 549_707, 4 * 10_027_573)
    assert {quotas[x] for x in ("swe", "fas", "ekk")} <= {69_230_293, 69_230_294}
    assert sum(quotas.values()) == 250_000_000
    assert unimax_quotas({"a": 10, "b": 100, "c": 1_000}, 200) == {"a": 10, "b": 95, "c": 95}


def test_a_power_law_comes_back() -> None:
    law = PowerLaw(scale=5.0, exponent=0.37)
    exposures = [60, 125, 250, 250]
    fitted = fit_power_law(exposures, [law.nll(x) for x in exposures])
    assert (fitted.scale, fitted.exponent) == (pytest.approx(5.0, rel=1e-6), pytest.approx(0.37, rel=1e-6))  # type: ignore[comparison-overlap]


def test_larger_exposures_weigh_more() -> None:
    nll = [1.0, 0.8, 0.75]
    fitted = fit_power_law([10, 100, 1_000], nll)

    def misfit(scale: Any, exponent: Any) -> Any:
        return sum(x * (y - scale * x**-exponent) ** 2 for x, y in zip([10, 100, 1_000], nll, strict=True))

    best = misfit(fitted.scale, fitted.exponent)
    for scale, exponent in itertools.product((0.999, 1, 1.001), (0.99, 1, 1.01)):
        assert best <= misfit(fitted.scale * scale, fitted.exponent * exponent) + 1e-12


def test_a_rising_curve_is_flat_to_a_power_law() -> None:
    fitted = fit_power_law([100, 200], [0.5, 0.6])
    assert fitted.exponent == pytest.approx(0.0, abs=1e-9)
    assert fitted.nll(10**6) == pytest.approx((100 * 0.5 + 200 * 0.6) / 300)


def objective(laws: Any, sizes: Any, held: Any, balance: Any) -> Any:
    mean = sum(laws[x].nll(held[x]) for x in laws) / len(laws)
    losses = [laws[x].nll(sizes[x]) for x in laws]
    return sum(loss + balance * max(0.0, loss / mean - 1) for loss in losses)


@pytest.mark.parametrize("balance", [0.0, 1.0, 10.0])
def test_one_shot_is_the_minimum_of_its_objective(balance: float) -> None:
    rng = random.Random(6)  # noqa: S311
    for _ in range(20):
        laws = {x: PowerLaw(scale=rng.uniform(0.5, 5), exponent=rng.uniform(0.05, 0.8)) for x in "abc"}
        held = {x: rng.randint(1, 6) for x in laws}
        upper = {x: held[x] + rng.randint(2, 6) for x in laws}
        added = slice_tuner_round(laws, held, 6, upper=upper, balance=balance)
        assert sum(added.values()) == 6
        made = {x: held[x] + added[x] for x in laws}
        assert all(held[x] <= made[x] <= upper[x] for x in laws)
        best = min(
            objective(laws, dict(zip(laws, sizes, strict=True)), held, balance)
            for sizes in itertools.product(*(range(held[x], upper[x] + 1) for x in laws))
            if sum(sizes) == sum(held.values()) + 6
        )
        assert objective(laws, made, held, balance) == pytest.approx(best, rel=1e-12)


def test_balance_moves_units_to_the_slices_that_lose_most() -> None:
    laws = {"bad": PowerLaw(scale=4.0, exponent=0.1), "good": PowerLaw(scale=1.0, exponent=0.4)}
    held = {"bad": 100, "good": 100}
    plain, fair = (slice_tuner_round(laws, held, 400, balance=balance) for balance in (0.0, 10.0))
    assert fair["bad"] > plain["bad"]


def test_a_limit_keeps_the_balance_of_the_slices() -> None:
    laws = {"a": PowerLaw(scale=5.0, exponent=0.5), "b": PowerLaw(scale=0.5, exponent=0.01)}
    held = {"a": 100, "b": 100}
    whole = slice_tuner_round(laws, held, 1_000)
    assert imbalance([100 + whole["a"], 100 + whole["b"]]) > 2
    part = slice_tuner_round(laws, held, 1_000, limit=1.0)
    assert imbalance([100 + part["a"], 100 + part["b"]]) <= 2
    assert imbalance([101 + part["a"], 100 + part["b"]]) > 2
    assert slice_tuner_round(laws, held, 1_000, limit=1e9) == whole


def test_rounds_spend_the_budget_whatever_the_limit() -> None:
    laws = {"a": PowerLaw(scale=5.0, exponent=0.5), "b": PowerLaw(scale=0.5, exponent=0.01)}
    sizes, left, rounds = {"a": 10, "b": 10}, 60, 0
    while left:
        added = slice_tuner_round(laws, sizes, left, limit=0.01)
        assert sum(added.values()) >= 1
        sizes, left, rounds = {x: sizes[x] + added[x] for x in sizes}, left - sum(added.values()), rounds + 1
    assert sum(sizes.values()) == 80
    assert rounds > 1


@pytest.mark.parametrize(
    ("exposures", "nll"),
    [([100], [1.0]), ([100, 100], [1.0, 0.9]), ([0, 100], [1.0, 0.9]), ([1, 2], [1.0]), ([1, 2], [1.0, 0.0])],
)
def test_what_no_power_law_goes_through_is_refused(exposures: Any, nll: Any) -> None:
    with pytest.raises(AllocationError, match="a power law needs"):
        fit_power_law(exposures, nll)


def test_slice_tuner_refuses_what_it_cant_start_from() -> None:
    law = PowerLaw(scale=1.0, exponent=0.5)
    with pytest.raises(AllocationError, match="starts from some units of every source"):
        slice_tuner_round({"a": law, "b": law}, {"a": 0, "b": 5}, 10)
    with pytest.raises(AllocationError, match="short of the budget"):
        slice_tuner_round({"a": law}, {"a": 5}, 10, upper={"a": 9})
    with pytest.raises(AllocationError, match="sizes and laws must name the same sources"):
        slice_tuner_round({"a": law}, {"b": 5}, 10)
    assert law.nll(0) == math.inf

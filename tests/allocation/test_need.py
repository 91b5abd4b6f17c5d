"""The factors of the utility (paper 2.2)."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest

from calibudget.allocation.utility_factors import EPSILON, needs, power, products, utilities
from calibudget.errors import AllocationError, InputTypeError

ROWS = {
    "b": {"pool_size": 1_000, "mean_error": 3.0, "bootstrap_sd": 0.25},
    "a": {"pool_size": 500, "mean_error": 1.0, "bootstrap_sd": 0.0},
}


def test_needs_have_mean_one() -> None:
    assert needs([1.0, 3.0]) == [0.5, 1.5]
    assert needs([2.0]) == [1.0]
    assert needs([]) == []


def test_needs_are_scaled_by_an_exactly_rounded_sum() -> None:
    errors = [0.1] * 10
    assert needs(errors) == [0.1 / (math.fsum(errors) / 10)] * 10
    assert needs([1e16, 1.0, -0.0, 1.0])[1] == 1.0 / (math.fsum([1e16, 1.0, EPSILON, 1.0]) / 4)


def test_tiny_and_negative_errors_count_as_epsilon() -> None:
    assert EPSILON == 1e-12
    assert needs([-1e-9, 0.0, EPSILON / 2, EPSILON]) == [1.0] * 4
    low, high = needs([0.0, 1.0])
    assert 0 < low < high


def test_ranks_share_the_mean_of_their_places() -> None:
    assert needs([5.0, 1.0, 3.0], "rank") == [1.5, 0.5, 1.0]
    assert needs([2.0, 2.0, 9.0], "rank") == [0.75, 0.75, 1.5]


def test_log1p_is_correctly_rounded() -> None:
    raw = [float(Fraction(*x)) for x in [(1, 10), (3, 1)]]
    values = [math.log1p(x) for x in raw]
    assert needs(raw, "log1p") == pytest.approx([v / (math.fsum(values) / 2) for v in values], rel=1e-15)
    # ln(2) and ln(1.5) to 40 digits, rounded.
    assert needs([1.0], "log1p") == [1.0]
    first, second = needs([1.0, 0.5], "log1p")
    assert first / second == pytest.approx(0.6931471805599453 / 0.4054651081081644, rel=1e-15)


def test_powers(subtests: pytest.Subtests) -> None:
    for base in [1e-12, 0.3, 1.0, 7.0, 1e300]:
        with subtests.test(base=base):
            assert power(base, 1) == base
            assert power(base, 0) == 1.0
            assert power(base, 0.5) == math.sqrt(base)
            assert power(base, 0.25) == pytest.approx(base**0.25, rel=2e-16)
            assert power(base, -0.7) == pytest.approx(base**-0.7, rel=3e-16)


def test_other_powers_are_correctly_rounded() -> None:
    # 2**(1/4) = 1.18920711500272106671749997..., 3**1.5 = 5.19615242270663188058233902...
    assert power(2.0, 0.25) == 1.189207115002721
    assert power(3.0, 1.5) == 5.196152422706632


def test_products_multiply_from_the_left() -> None:
    factors, ones = [[0.1], [0.2], [0.3]], {"x": 1, "y": 1, "z": 1}
    assert products(["a"], factors, ones) == [(0.1 * 0.2) * 0.3]
    assert products(["a"], factors, ones) != [0.1 * (0.2 * 0.3)]
    assert products(["a", "b"], [[4.0, 9.0], [2.0, 3.0]], {"x": 0.5, "y": 1}) == [4.0, 9.0]


def test_utilities_follow_the_papers_formula() -> None:
    made = utilities(ROWS, 100)
    assert list(made) == ["a", "b"]
    assert made["a"] == (0.5 * math.sqrt(math.sqrt(400))) * 1.0
    assert made["b"] == (1.5 * math.sqrt(math.sqrt(900))) * (1 / 1.25)


def test_utilities_know_own_floors_and_pools_below_the_floor() -> None:
    made = utilities(ROWS, 600, floors={"b": 0})
    assert made["a"] == 0.5 * math.sqrt(math.sqrt(1e-12))
    assert made["b"] == 1.5 * math.sqrt(math.sqrt(1000)) * 0.8


def test_exponents_weigh_the_factors() -> None:
    made = utilities(ROWS, 100, need_exponent=0, availability_exponent=0, reliability_exponent=1)
    assert made == {"a": 1.0, "b": 0.8}
    made = utilities(ROWS, 100, need_exponent=2, availability_exponent=0, reliability_exponent=0)
    assert made == {"a": 0.25, "b": 2.25}
    made = utilities(ROWS, 100, need_exponent=0, availability_exponent=1, reliability_exponent=0)
    assert made == {"a": 20.0, "b": 30.0}
    assert utilities(ROWS, 100, need_transform="rank")["a"] == (2 / 3) * math.sqrt(20.0)


@pytest.mark.parametrize("name", ["need_exponent", "availability_exponent", "reliability_exponent"])
def test_bad_exponents_are_refused_by_name(name: str) -> None:
    with pytest.raises(AllocationError, match=f"{name} must be finite, but is inf"):
        utilities(ROWS, 100, **{name: math.inf})  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match=f"{name} must be a number, not True"):
        utilities(ROWS, 100, **{name: True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "exponents", [{"availability_exponent": 500.0}, {"availability_exponent": 1e308}, {"need_exponent": -1e300}]
)
def test_exponents_that_leave_the_doubles_are_refused(exponents: Any) -> None:
    with pytest.raises(
        AllocationError, match=r"_exponent: of 'a', .* is too large a number; take an exponent nearer to 0"
    ):
        utilities(ROWS, 1, **exponents)


def test_utilities_beyond_the_doubles_are_refused_by_name(subtests: pytest.Subtests) -> None:
    """Else sources would get the same, or nothing, for want of digits."""
    cases: list[Any] = [
        (
            {"reliability_exponent": 1e6},
            "reliability_exponent: of 'b', 0.8 to the power of 1e+06 is too small a number",
        ),
        (
            {"need_exponent": -1000.0, "availability_exponent": 10.0},
            "the utility of 'a' is 0.5^-1000 * 22.3383^10 * 1^1, too large a number; take exponents nearer to 0 "
            "(need_exponent, availability_exponent, reliability_exponent)",
        ),
    ]
    for exponents, message in cases:
        with subtests.test(message=message), pytest.raises(AllocationError, match=f"^{re.escape(message)}"):
            utilities(ROWS, 1, **exponents)


def test_a_power_needs_a_base_above_zero() -> None:
    with pytest.raises(AllocationError, match="a power needs a base above 0, not 0"):
        power(0.0, -3.0)

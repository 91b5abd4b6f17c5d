"""Floors and caps as people write them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibudget.allocation.bounds import Portion, least_units, most_units, parse_amount
from calibudget.errors import AllocationError, InputTypeError


def test_amounts_are_counts_or_portions(subtests: pytest.Subtests) -> None:
    for written, amount in [
        (0, 0),
        (np.int64(12), 12),
        ("10% of budget", Portion(share=Fraction(1, 10), of="budget")),
        (" 12.5 % of pool ", Portion(share=Fraction(1, 8), of="pool")),
        ("100% of budget", Portion(share=Fraction(1), of="budget")),
        ("0% of pool", Portion(share=Fraction(0), of="pool")),
        (Portion(share=Fraction(1, 3), of="pool"), Portion(share=Fraction(1, 3), of="pool")),
    ]:
        with subtests.test(written=written):
            assert parse_amount(written, "the floor") == amount


def test_other_texts_are_refused_with_the_ways_out(subtests: pytest.Subtests) -> None:
    for written in [
        *("", "9000", "10%", "10% of pools", "a% of pool", "-5% of pool", "1e1% of pool", "50%of pool", "٣% of pool"),
        *("9" * 5_000 + "% of pool", "0." + "0" * 5_000 + "1% of budget"),
    ]:
        with (
            subtests.test(written=written),
            pytest.raises(
                AllocationError,
                match=r"the cap of 'a' is '.{0,60}, which can't be read: write a whole number, or a text",
            ),
        ):
            parse_amount(written, "the cap of 'a'")


@pytest.mark.parametrize("written", [0.1, 3.0, Fraction(1, 2)])
def test_a_fraction_of_nothing_named_is_refused(written: Any) -> None:
    with pytest.raises(InputTypeError, match=r"the floor is .*, but of what\?"):
        parse_amount(written, "the floor")


def test_a_portion_is_exact(subtests: pytest.Subtests) -> None:
    for share in [0.5, 1, True, "1/2"]:
        with (
            subtests.test(share=share),
            pytest.raises(InputTypeError, match=r"the share of the floor must be a Fraction, not "),
        ):
            parse_amount(Portion(share=share, of="pool"), "the floor")  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [True, None, [1]])
def test_other_types_are_refused(written: Any) -> None:
    with pytest.raises(InputTypeError, match="the floor must be an integer"):
        parse_amount(written, "the floor")


def test_amounts_out_of_range_are_refused() -> None:
    with pytest.raises(AllocationError, match="the floor must not be negative, but is -1"):
        parse_amount(-1, "the floor")
    with pytest.raises(AllocationError, match=r"the cap is 1\.01 of the pool, but a share lies between 0 and 1"):
        parse_amount("101% of pool", "the cap")
    with pytest.raises(AllocationError, match=r"the cap is inf of the pool, but a share lies between 0 and 1"):
        parse_amount("9" * 400 + "% of pool", "the cap")
    with pytest.raises(AllocationError, match=r"the cap is -0\.5 of the budget"):
        parse_amount(Portion(share=Fraction(-1, 2), of="budget"), "the cap")


def test_floors_round_up_and_caps_down() -> None:
    third = Portion(share=Fraction(1, 3), of="pool")
    assert least_units(third, budget=1, pool=100) == 34
    assert most_units(third, budget=1, pool=100) == 33
    tenth = Portion(share=Fraction(1, 10), of="budget")
    assert (least_units(tenth, budget=100, pool=1), most_units(tenth, budget=100, pool=1)) == (10, 10)
    assert (least_units(7, budget=0, pool=0), most_units(7, budget=0, pool=0)) == (7, 7)

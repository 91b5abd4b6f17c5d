"""Gains are compared exactly: against logarithms of four hundred digits, and where doubles see no difference."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from testbed.rivals.gains import Slope, compare_gains, unit

DIGITS = Context(prec=400)


def oracle(slope: Any, quota: Any) -> Any:
    """The gain to four hundred digits, but for 1 / ln 2."""
    size = DIGITS.divide(Decimal(slope.coefficient.numerator), Decimal(slope.coefficient.denominator))
    ends = []
    for q in (quota, quota + 1):
        log = DIGITS.ln(DIGITS.divide(Decimal(q), Decimal(slope.exposure)))
        if slope.exponent:
            power = DIGITS.exp(DIGITS.multiply(-Decimal(slope.exponent), log))
            log = DIGITS.divide(DIGITS.subtract(Decimal(1), power), Decimal(slope.exponent))
        ends.append(log)
    return DIGITS.multiply(size, DIGITS.subtract(ends[1], ends[0]))


def slope(coefficient: Any, exponent: float = 0.0, exposure: int = 250) -> Any:
    return Slope(coefficient=Fraction(coefficient), exponent=exponent, exposure=exposure)


def test_gains_in_doubles_are_near_the_oracles() -> None:
    rng = random.Random(5)  # noqa: S311
    for _ in range(40):
        one = slope(rng.random(), rng.choice([0.0, 0.03125, 0.5, 1.0, 4.0]), rng.choice([1, 250, 10**6]))
        quota = rng.choice([1, 2, 99, 10**5, 10**12])
        exact = oracle(one, quota) / DIGITS.ln(Decimal(2))
        assert abs(Decimal(one.gain(quota)) / exact - 1) < Decimal(2) ** -40


def test_gains_at_different_quotas_part_however_near_they_are() -> None:
    # The best rational approximations of ln(2/1) / ln(6/5): the gains agree in ever more digits, and never quite.
    ratio = DIGITS.divide(DIGITS.ln(Decimal(2)), DIGITS.ln(DIGITS.divide(Decimal(6), Decimal(5))))
    for digits in (20, 60, 120):
        near = Fraction(ratio).limit_denominator(10**digits)
        one, other = unit(slope(1), 0, 1), unit(slope(near), 1, 5)
        expected = oracle(one.slope, 1).compare(oracle(other.slope, 5))
        assert compare_gains(one, other) == int(expected) != 0

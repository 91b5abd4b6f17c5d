"""What one more unit of a source takes off the predicted NLL, compared exactly.

A unit's gain is coefficient * (h((q + 1) / exposure) - h(q / exposure)) with the h of `records.Curve`. Doubles
decide where they can. Where they are too near each other, decimals decide: logarithms and exponentials are rounded
correctly there, so that every machine finds the same.

Two gains of log-linear curves are equal only if their coefficients are and q is. For let a ln((q + 1) / q) =
b ln((p + 1) / p) with a / b = n / m in lowest terms; then ((q + 1) / q)**n = ((p + 1) / p)**m, and as neighbours
have no common factor, q**n = p**m and (q + 1)**n = (p + 1)**m. So q = r**m and p = r**n for some r >= 1, and
q + 1 = t**m and p + 1 = t**n for some t; but two m-th powers are neighbours only for m = 1, and so for n. Digits are
therefore added until two unequal gains part. For power laws equal gains of unlike curves exist; those that agree in
`_MOST_DIGITS` digits count as equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

# Relative error that is allowed to a gain in doubles; what is computed below stays well under it.
_TOLERANCE: Final = 2.0**-36
# Doubles below this may have lost digits.
_SMALL: Final = 2.0**-900
_FIRST_DIGITS: Final = 50
_MOST_DIGITS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """What a source's gains are made of.

    Attributes:
        coefficient: weight times slope, exact, > 0.
        exponent: of its curve, >= 0.
        exposure: of its curve, >= 1; plays no role at the exponent 0.
    """

    coefficient: Fraction
    exponent: float
    exposure: int

    def gain(self, quota: int) -> float:
        """The gain of the unit that follows `quota` units, nats times the weight; infinite for the first one."""
        if not quota:
            return math.inf
        step = math.log1p(1 / quota)
        if self.exponent:
            start = math.exp(-self.exponent * math.log(quota / self.exposure))
            step = start * -math.expm1(-self.exponent * step) / self.exponent
        return float(self.coefficient) / math.log(2) * step

    def gain_digits(self, quota: int, digits: int) -> Decimal:
        """The same but for the factor 1 / ln 2, for quota >= 1, to about so many digits."""
        # Operators would round to the digits of the surrounding context.
        exponent = Decimal(self.exponent)
        # A logarithm near 0, and a difference near it, lose as many digits as they have zeros in front.
        lost = len(str(quota)) + max(0, -exponent.adjusted())
        context = Context(prec=digits + lost + 20, Emin=-(10**9), Emax=10**9)
        ratio = context.ln(context.divide(Decimal(quota + 1), Decimal(quota)))
        if self.exponent:
            start = context.ln(context.divide(Decimal(self.exposure), Decimal(quota)))
            start = context.exp(context.multiply(exponent, start))
            # 1 - (q / (q + 1))**exponent, the reciprocal of which is the exponential here.
            step = context.subtract(
                Decimal(1), context.divide(Decimal(1), context.exp(context.multiply(exponent, ratio)))
            )
            ratio = context.divide(context.multiply(start, step), exponent)
        size = context.divide(Decimal(self.coefficient.numerator), Decimal(self.coefficient.denominator))
        return context.multiply(size, ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit of one source; units sort by their gain, largest first, then by the source's place.

    Attributes:
        slope: of the source.
        place: the source's place in code-point order.
        quota: units of the source before this one.
        size: the gain in doubles.
    """

    slope: Slope
    place: int
    quota: int
    size: float

    def __lt__(self, other: Unit) -> bool:
        """Whether this unit comes before the other one."""
        order = compare_gains(self, other)
        return order > 0 or (not order and (self.place, self.quota) < (other.place, other.quota))


def unit(slope: Slope, place: int, quota: int) -> Unit:
    """The unit that follows `quota` units of a source."""
    return Unit(slope=slope, place=place, quota=quota, size=slope.gain(quota))


def compare_gains(one: Unit, other: Unit) -> int:
    """1 if the first unit's gain is the larger one, -1 if it is the smaller one, 0 if they are equal.

    First units of curves without a beginning have infinite gains; these stand in the order of their coefficients.
    """
    if one.place == other.place:
        return (one.quota < other.quota) - (one.quota > other.quota)
    if not (one.quota and other.quota):
        return _order(not one.quota, not other.quota) or _order(one.slope.coefficient, other.slope.coefficient)
    gap, most = one.size - other.size, max(one.size, other.size)
    if abs(gap) > _TOLERANCE * most and most > _SMALL:
        return 1 if gap > 0 else -1
    return _compare_digits(one, other)


def _compare_digits(one: Unit, other: Unit) -> int:
    is_linear = not (one.slope.exponent or other.slope.exponent)
    if one.quota == other.quota and (is_linear or _same_form(one.slope, other.slope)):
        return _order(one.slope.coefficient, other.slope.coefficient)
    digits = _FIRST_DIGITS
    while True:
        first, second = (each.slope.gain_digits(each.quota, digits) for each in (one, other))
        if abs(first - second) > max(first, second).scaleb(-digits):
            return _order(first, second)
        if digits >= _MOST_DIGITS and not is_linear:
            return 0
        digits *= 2


def _same_form(one: Slope, other: Slope) -> bool:
    return one.exponent == other.exponent and one.exposure == other.exposure


def _order(one: Fraction | Decimal | bool, other: Fraction | Decimal | bool) -> int:
    return (one > other) - (one < other)

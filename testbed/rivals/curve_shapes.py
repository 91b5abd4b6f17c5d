"""The shapes that a learning curve may have, and the weights that read its slope off means at several exposures.

Everything is computed in decimals and rounded once, so that slopes, and the quotas that follow from them, are the same
on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final

_CONTEXT: Final = Context(prec=50)
_DIGITS: Final = 40
_LN2: Final = Decimal(2).ln(_CONTEXT)

#: Exponents that a power law may have: thirty-seconds up to 4, at which a doubling leaves a sixteenth of the fall.
EXPONENTS: Final = tuple(number / 32 for number in range(1, 129))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Least squares of one shape over E exposures; the reference is the largest of them.

    Attributes:
        exponent: of the power law; 0 is log-linear.
        slope_weights: give the fall per doubling at the reference from the means, shape (E,), sum 0.
        reach: the mean of h over the exposures, divided by ln 2: at the slope s the curve passes the mean of the means
            at the level mean + s * reach. At most 0.
        residual_weights: one row an exposure gives its residual from the means, shape (E, E).
    """

    exponent: float
    slope_weights: tuple[float, ...]
    reach: float
    residual_weights: tuple[tuple[float, ...], ...]

    def slope(self, means: Sequence[float]) -> float:
        """The fall per doubling at the reference, nats."""
        return math.fsum(weight * mean for weight, mean in zip(self.slope_weights, means, strict=True))

    def level(self, means: Sequence[float], slope: float) -> float:
        """The NLL at the reference of the curve of that slope that fits the means best, nats."""
        return math.fsum(means) / len(means) + slope * self.reach

    def misfit(self, means: Sequence[float]) -> float:
        """Sum of the squared residuals, nats squared."""
        residuals = [
            math.fsum(weight * mean for weight, mean in zip(row, means, strict=True)) for row in self.residual_weights
        ]
        return math.fsum(residual * residual for residual in residuals)


@lru_cache(maxsize=4096)
def shape(exposures: tuple[int, ...], exponent: float = 0.0) -> Shape:
    """The shape of an exponent over these exposures.

    Args:
        exposures: strictly ascending, >= 1, at least 2 of them.
        exponent: >= 0.
    """
    with localcontext(_CONTEXT):
        heights = _heights(exposures, exponent)
        count = len(heights)
        centre = sum(heights) / Decimal(count)
        gaps = [height - centre for height in heights]
        spread = sum(gap * gap for gap in gaps)
        residuals = [[(row is column) - 1 / Decimal(count) - row * column / spread for column in gaps] for row in gaps]
        return Shape(
            exponent=exponent,
            slope_weights=tuple(_rounded(-gap * _LN2 / spread) for gap in gaps),
            reach=float(centre / _LN2),
            residual_weights=tuple(tuple(map(_rounded, row)) for row in residuals),
        )


@lru_cache(maxsize=4096)
def curvature_weights(exposures: tuple[int, ...]) -> tuple[float, ...]:
    """Weights that give how far means bend away from the log-linear shape, shape (E,); above 0 the fall slows down.

    They are the part of the squared logarithms of the exposures that no straight line through the logarithms has.
    """
    straight = shape(exposures)
    with localcontext(_CONTEXT):
        squares = [float(height * height) for height in _heights(exposures, 0.0)]
    return tuple(
        math.fsum(weight * square for weight, square in zip(row, squares, strict=True))
        for row in straight.residual_weights
    )


def _rounded(value: Decimal) -> float:
    """As a double; what is left of a difference that should be 0 becomes 0."""
    return float(round(value, _DIGITS)) + 0.0


def _heights(exposures: Sequence[int], exponent: float) -> list[Decimal]:
    """The h of `records.Curve` at each exposure, the largest being the reference."""
    logs = [(Decimal(exposure) / Decimal(exposures[-1])).ln() for exposure in exposures]
    if not exponent:
        return logs
    power = Decimal(exponent)
    return [(1 - (-power * log).exp()) / power for log in logs]

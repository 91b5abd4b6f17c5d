"""Slopes in the light of each other: drawn together as far as noise explains their spread, and never negative.

The spread of the measured slopes is that of the true ones plus noise of known size. What noise can't explain is what
the sources differ by; where nothing is left, all sources get the same slope (empirical Bayes, normal means). More data
doesn't raise an NLL for good, so the part of a slope's distribution below 0 is cut off, which leaves to a source whose
slope can't be told from 0 the little that it may still be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

#: A slope, or a curvature, counts as seen from so many of its standard deviations on.
VISIBLE: Final = 2.0

_PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_DIGITS: Final = 60
# Beyond so many standard deviations a normal variable counts as certain.
_CERTAIN: Final = 8
_STEPS_PER_UNIT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """How the true slopes are spread over the sources.

    Attributes:
        mean: nats per doubling.
        variance: what noise leaves of the slopes' variance, >= 0.
    """

    mean: float
    variance: float


def prior_of(slopes: Sequence[float], sds: Sequence[float]) -> Prior:
    """The prior that measured slopes imply, by moments.

    The variance is that of the slopes (ddof 1) less the mean of the noise variances, and 0 if that is negative; the
    mean weighs each slope by the inverse of its whole variance. One slope alone is its own mean.

    Args:
        slopes: measured, shape (K,), K >= 1.
        sds: their standard deviations, shape (K,).
    """
    count = len(slopes)
    if count == 1:
        return Prior(mean=slopes[0], variance=0.0)
    centre = math.fsum(slopes) / count
    spread = math.fsum((slope - centre) * (slope - centre) for slope in slopes) / (count - 1)
    variance = max(0.0, spread - math.fsum(sd * sd for sd in sds) / count)
    totals = [variance + sd * sd for sd in sds]
    if all(totals):
        centre = math.fsum(slope / total for slope, total in zip(slopes, totals, strict=True)) / math.fsum(
            1 / total for total in totals
        )
    return Prior(mean=centre, variance=variance)


def used_slopes(slopes: Sequence[float], sds: Sequence[float], prior: Prior | None) -> list[float]:
    """The slopes to allocate by, shape (K,), >= 0.

    Each is the mean of its normal posterior without the part below 0. A slope that visibly rises, by two standard
    deviations, is 0. Without a prior, slopes stay as measured, and negative ones are 0.

    Args:
        slopes: measured, shape (K,).
        sds: their standard deviations, shape (K,).
        prior: of `prior_of`, or None.
    """
    if prior is None:
        return [max(0.0, slope) for slope in slopes]
    return [
        0.0 if slope < -VISIBLE * sd else _posterior_mean(slope, sd, prior)
        for slope, sd in zip(slopes, sds, strict=True)
    ]


def _posterior_mean(slope: float, sd: float, prior: Prior) -> float:
    noise = sd * sd
    total = prior.variance + noise
    if not noise:
        return max(0.0, slope)
    mean = (prior.variance * slope + noise * prior.mean) / total
    spread = math.sqrt(prior.variance * noise / total)
    if not spread or abs(mean) >= _CERTAIN * spread:
        return max(0.0, mean)
    return spread * _mean_excess(-mean / spread)


def _mean_excess(bound: float) -> float:
    """By how much a standard normal variable above the bound exceeds it on average, |bound| < 8.

    Interpolated between values on a grid, which are rounded from decimals: the same bits on every machine, and within
    1e-5 of the true value.
    """
    place = bound * _STEPS_PER_UNIT
    low = math.floor(place)
    share = place - low
    return (1 - share) * _mean_excess_at(low) + share * _mean_excess_at(low + 1)


@lru_cache(maxsize=2 * _CERTAIN * _STEPS_PER_UNIT + 1)
def _mean_excess_at(step: int) -> float:
    with localcontext() as context:
        context.prec = _DIGITS
        bound = Decimal(step) / _STEPS_PER_UNIT
        density = (-bound * bound / 2).exp() / (2 * _PI).sqrt()
        # The integral of the density from 0 is the density times x + x**3 / 3 + x**5 / (3 * 5) + ...
        term, total, odd = bound, bound, 1
        while abs(term) > Decimal(10) ** -_DIGITS:
            odd += 2
            term = term * bound * bound / odd
            total += term
        return float(density / (Decimal("0.5") - density * total) - bound)

"""Drawing noisy slopes together as far as noise explains their spread (empirical Bayes, normal means).

The spread of the measured slopes is that of the true ones plus noise of known size. What noise can't explain is
what the sources differ by; where nothing is left, all sources get the same slope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
    spread = math.fsum((slope - centre) ** 2 for slope in slopes) / (count - 1)
    variance = max(0.0, spread - math.fsum(sd * sd for sd in sds) / count)
    totals = [variance + sd * sd for sd in sds]
    if all(totals):
        centre = math.fsum(slope / total for slope, total in zip(slopes, totals, strict=True)) / math.fsum(
            1 / total for total in totals
        )
    return Prior(mean=centre, variance=variance)


def drawn_to(prior: Prior, slopes: Sequence[float], sds: Sequence[float]) -> list[float]:
    """The slopes' posterior means, shape (K,): each between its measurement and the prior's mean.

    A slope that was measured without noise stays as it is.
    """
    return [
        slope if not sd else (prior.variance * slope + sd * sd * prior.mean) / (prior.variance + sd * sd)
        for slope, sd in zip(slopes, sds, strict=True)
    ]

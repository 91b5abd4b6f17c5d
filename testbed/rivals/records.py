"""Learning curves of the sources as the rivals' rules pass them on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CurveForm = Literal["log-linear", "power"]
#: What a measured slope shows at two standard deviations.
Verdict = Literal["falling", "flat", "rising"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The mean calibration NLL of a source as a function of the units of it that a model is trained on.

    NLL(q) = level - slope / ln 2 * h(q / exposure), where h(r) is ln r for the exponent 0, so that each doubling
    takes off the same, and (1 - r**-exponent) / exponent for a larger one: a power law whose floor is
    level - slope / (ln 2 * exponent).

    Attributes:
        exposure: the units at which level and slope are taken, >= 1.
        level: NLL there, nats.
        slope: fall of the NLL per doubling there, nats, >= 0.
        exponent: of the power law, >= 0.
    """

    exposure: int
    level: float
    slope: float
    exponent: float = 0.0

    def nll(self, quota: float) -> float:
        """The NLL after `quota` units, nats; infinite at 0 unless the curve is flat."""
        if not self.slope:
            return self.level
        if quota <= 0:
            return math.inf
        ratio = math.log(quota / self.exposure)
        gone = ratio if not self.exponent else -math.expm1(-self.exponent * ratio) / self.exponent
        return self.level - self.slope / math.log(2) * gone


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFit:
    """A source's learning curve and what it was made from.

    Attributes:
        curve: what is used: its slope is shrunk, and never negative.
        raw_slope: fall per doubling as measured at the largest exposure, nats; negative where the NLL rises.
        slope_sd: standard deviation of the raw slope, nats.
        interval: 95% bootstrap interval of the raw slope.
        verdict: what the raw slope shows at two standard deviations.
        records_needed: calibration records with which this slope would be two standard deviations from 0; None where
            it doesn't fall, or where runs differ too much for any number of records.
    """

    curve: Curve
    raw_slope: float
    slope_sd: float
    interval: tuple[float, float]
    verdict: Verdict
    records_needed: int | None

    @property
    def slope(self) -> float:
        """The slope that is used, nats per doubling, >= 0."""
        return self.curve.slope

"""Learning curves of sources from the calibration NLLs that warm-ups left.

A warm-up trains on some units of every source. Two or three of them, each containing the smaller ones, show by how
much a source's NLL still falls when its exposure doubles. A slope is a mean over calibration records, so its standard
deviation is known, and so is what noise alone makes slopes differ by (`shrinkage`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from calibudget.allocation.exact.numbers import as_count
from calibudget.allocation.labels import listed, sorted_labels
from calibudget.allocation.statistics import FEW_RECORDS, RESAMPLES, Floats, as_resamples
from calibudget.errors import AllocationError
from calibudget.messages import counted
from testbed.rivals.curve_bootstrap import (
    Refits,
    Replicates,
    best_shape,
    refit,
    refitted_curves,
    standard_deviation,
)
from testbed.rivals.curve_shapes import Shape, curvature_weights, shape
from testbed.rivals.records import Curve, CurveFit, CurveForm, Verdict
from testbed.rivals.shrinkage import VISIBLE, Prior, prior_of, used_slopes

#: The bootstrap seed unless another is given.
SEED: Final = 42


class CurveWarning(UserWarning):
    """Something that a user should know of measured curves before relying on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUps:
    """What warm-ups left of one source.

    Attributes:
        exposures: units of the source that each warm-up trained on, strictly ascending, >= 1, shape (E,), E >= 2.
        nll: NLLs of the same calibration records in the same order after each of them, nats, finite, shape (E, C),
            C >= 2.
    """

    exposures: Sequence[int]
    nll: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSet:
    """The curves of all sources.

    Attributes:
        sources: by label in code-point order.
        prior: what the slopes were drawn towards; None where they weren't.
        replicates: curves from resampled records, for intervals.
    """

    sources: Mapping[str, CurveFit]
    prior: Prior | None
    replicates: Replicates

    @property
    def curves(self) -> dict[str, Curve]:
        """The curve of each source that is used."""
        return {label: fit.curve for label, fit in self.sources.items()}

    @property
    def slopes(self) -> dict[str, float]:
        """Fall of the NLL per doubling of exposure, nats, >= 0: the utilities of `learning-curve`."""
        return {label: fit.slope for label, fit in self.sources.items()}


def fit_curves(
    warm_ups: Mapping[str, WarmUps],
    *,
    form: CurveForm = "log-linear",
    shrink: bool = True,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    run_sd: float = 0.0,
    require_visible: bool = True,
) -> CurveSet:
    """Fit a learning curve to every source.

    Args:
        warm_ups: what was measured, by label; exposures may differ between sources.
        form: `log-linear`; or `power`, which is a power law with a floor for the sources whose three or more means
            bend by two standard deviations or more, and log-linear for the others.
        shrink: whether slopes are drawn together as far as noise explains their spread.
        resamples: bootstrap replicates, at least 1.
        seed: the bootstrap seed.
        run_sd: by how much a source's mean NLL differs from one training to the next, standard deviation, nats. The
            calibration records don't show it; 0 leaves it out of standard deviations and intervals.
        require_visible: whether to refuse when no slope is two standard deviations above 0.

    Raises:
        InputTypeError, AllocationError: measurements that can't be used, no curve that falls, or none that visibly
            does; then the message says how many calibration records would show the steepest.

    Warns:
        CurveWarning: curves that rise (their slope counts as 0), that are flat, or that few records made.
    """
    labels = sorted_labels(warm_ups)
    if not labels:
        raise AllocationError("there are no sources to fit curves to")
    if not (math.isfinite(run_sd) and run_sd >= 0):
        raise AllocationError(f"run_sd must be finite and not negative, but is {run_sd}")
    if form not in ("log-linear", "power"):
        raise AllocationError(f"a curve's form is log-linear or power, not {form!r}")
    resamples = as_resamples(resamples)
    sources = [_measured(label, warm_ups[label], form, run_sd) for label in labels]
    refits = {
        one.label: refit(one.label, one.rows, one.exposures, one.shape, resamples=resamples, seed=seed, run_sd=run_sd)
        for one in sources
    }
    raw = [one.shape.slope(one.means) for one in sources]
    sds = [_slope_sd(one, refits[one.label], run_sd) for one in sources]
    prior = prior_of(raw, sds) if shrink else None
    used = used_slopes(raw, sds, prior)
    fits = {
        one.label: CurveFit(
            curve=Curve(
                exposure=one.exposures[-1], level=one.shape.level(one.means, u), slope=u, exponent=one.shape.exponent
            ),
            raw_slope=slope,
            slope_sd=sd,
            interval=_central(sorted(refits[one.label].slopes.tolist())),
            verdict=_verdict(slope, sd),
            records_needed=_records_needed(one, slope, run_sd),
        )
        for one, slope, sd, u in zip(sources, raw, sds, used, strict=True)
    }
    _judge(sources, fits, require_visible=require_visible)
    exposures = [one.exposures[-1] for one in sources]
    return CurveSet(sources=fits, prior=prior, replicates=refitted_curves(refits, exposures))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """One source's NLLs, shape (E, C), their means, shape (E,), and the shape that fits these."""

    label: str
    exposures: tuple[int, ...]
    rows: Floats
    means: list[float]
    shape: Shape

    def variance(self, weights: Sequence[float], run_sd: float) -> float:
        """Of the weighted sum of the means, from the calibration records and from trainings."""
        calibration = _square(self.record_sd(weights)) / len(self.rows[0])
        return calibration + _square(run_sd) * math.fsum(map(_square, weights))

    def record_sd(self, weights: Sequence[float]) -> float:
        """Of a record's own weighted sum."""
        sums = np.zeros(self.rows.shape[1])
        for weight, row in zip(weights, self.rows, strict=True):
            sums = sums + weight * row
        return standard_deviation(sums.tolist())


def _measured(label: str, warm_ups: WarmUps, form: CurveForm, run_sd: float) -> _Measured:
    exposures = tuple(as_count(exposure, "an exposure", label) for exposure in warm_ups.exposures)
    if len(exposures) < 2 or exposures[0] < 1 or any(b <= a for a, b in pairwise(exposures)):
        raise AllocationError(
            f"the exposures of {label!r} are {list(exposures)}, but a curve needs two or more, ascending, from 1 on"
        )
    if len(warm_ups.nll) != len(exposures) or len({len(row) for row in warm_ups.nll}) != 1:
        raise AllocationError(
            f"{label!r} has NLLs of {', '.join(str(len(row)) for row in warm_ups.nll)} records for {len(exposures)} "
            "exposures: each exposure needs those of the same records"
        )
    rows = np.array(warm_ups.nll, dtype=np.float64)
    if rows.shape[1] < 2:
        raise AllocationError(f"{label!r} has {counted(rows.shape[1], 'calibration record')}; a slope needs at least 2")
    if not np.isfinite(rows).all():
        raise AllocationError(f"{label!r} has a calibration NLL that isn't finite")
    means = [math.fsum(row) / len(row) for row in rows.tolist()]
    straight = _Measured(label=label, exposures=exposures, rows=rows, means=means, shape=shape(exposures))
    if form == "log-linear" or len(exposures) < 3:
        return straight
    bend = curvature_weights(exposures)
    size = math.fsum(weight * mean for weight, mean in zip(bend, means, strict=True))
    is_bent = size > 0 and size >= VISIBLE * math.sqrt(straight.variance(bend, run_sd))
    chosen = best_shape(exposures, means) if is_bent else straight.shape
    return _Measured(label=label, exposures=exposures, rows=rows, means=means, shape=chosen)


def _slope_sd(source: _Measured, refits: Refits, run_sd: float) -> float:
    """A power law's slope moves with its exponent, which only the replicates show."""
    exact = math.sqrt(source.variance(source.shape.slope_weights, run_sd))
    if not source.shape.exponent or len(refits.slopes) < 2:
        return exact
    return max(exact, standard_deviation(refits.slopes.tolist()))


def _square(value: float) -> float:
    return value * value


def _verdict(slope: float, sd: float) -> Verdict:
    if slope > VISIBLE * sd:
        return "falling"
    return "rising" if slope < -VISIBLE * sd else "flat"


def _records_needed(source: _Measured, slope: float, run_sd: float) -> int | None:
    """Calibration records with which the slope would be visible."""
    weights = source.shape.slope_weights
    allowed = _square(slope / VISIBLE) - _square(run_sd) * math.fsum(map(_square, weights))
    return math.floor(_square(source.record_sd(weights)) / allowed) + 1 if slope > 0 and allowed > 0 else None


def _judge(sources: Sequence[_Measured], fits: Mapping[str, CurveFit], *, require_visible: bool) -> None:
    """Refuse curves that say nothing, and warn of those that say little."""
    by_verdict = {
        verdict: [label for label, fit in fits.items() if fit.verdict == verdict] for verdict in ("rising", "flat")
    }
    clearest = max(fits, key=lambda label: fits[label].raw_slope / (fits[label].slope_sd or math.inf))
    is_seen = any(fit.verdict == "falling" for fit in fits.values())
    if require_visible and not is_seen and fits[clearest].raw_slope > 0:
        raise AllocationError(_too_few(fits[clearest], clearest))
    if not any(fit.slope for fit in fits.values()):
        raise AllocationError(
            "no source's calibration NLL falls with its exposure, so learning curves can't allocate: take another "
            "policy, or larger exposures"
        )
    messages = [
        f"the NLL rises with the exposure, so that the slope counts as 0: {listed(by_verdict['rising'])}",
        f"the slope can't be told from 0 at two standard deviations: {listed(by_verdict['flat'])}",
    ]
    few = [f"{one.label} ({one.rows.shape[1]})" for one in sources if one.rows.shape[1] < FEW_RECORDS]
    found = [message for message, labels in zip(messages, by_verdict.values(), strict=True) if labels]
    found += [f"fewer than {FEW_RECORDS} calibration records, so slopes say little: {listed(few)}"] if few else []
    for message in found:
        warnings.warn(message, CurveWarning, stacklevel=3)


def _too_few(fit: CurveFit, label: str) -> str:
    remedy = (
        "larger exposures might"
        if fit.records_needed is None
        else f"about {counted(fit.records_needed, 'calibration record')} of it would, or exposures further apart"
    )
    return (
        f"no slope can be told from 0: the clearest, {label!r}, falls by {fit.raw_slope:.4f} nats per doubling with "
        f"a standard deviation of {fit.slope_sd:.4f}. The calibration split is too small to show it; {remedy}"
    )


def _central(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of ascending replicates: inverted-CDF quantiles."""
    low, high = (-(-per_mille * len(ordered) // 1000) - 1 for per_mille in (25, 975))
    return ordered[low], ordered[high]

"""Learning curves from resampled calibration records: how far slopes, quotas and predictions can be trusted.

The records of a source are resampled together over all its warm-ups, by a stream of the source's own. How much one
training differs from the next isn't seen by them: where its size is given, it is drawn besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibudget.allocation.curve_shapes import EXPONENTS, Shape, shape
from calibudget.allocation.statistics import Floats, paired_means
from calibudget.keys import named_stream
from calibudget.records import Curve

# So many uniform numbers less half as many have mean 0 and variance 1, and are normal but for the far tails.
_UNIFORMS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Refits:
    """One source's curves over R replicates, shape (R,) each.

    Attributes:
        exponents: of the power law; 0 throughout for a source that is log-linear.
        slopes: as measured, nats per doubling at the largest exposure.
        centres: the mean of the means over the exposures, nats.
        reaches: `Shape.reach` of the exponents.
    """

    exponents: Floats
    slopes: Floats
    centres: Floats
    reaches: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicates:
    """The curves of all sources over R replicates; arrays of shape (R, K) in the order of the labels.

    Attributes:
        labels: in code-point order.
        exposures: at which level and slope are taken, shape (K,).
        exponents: of the power laws.
        slopes: as measured, and 0 where the NLL rises.
        levels: NLL at the exposures, nats.
    """

    labels: Sequence[str]
    exposures: Sequence[int]
    exponents: Floats
    slopes: Floats
    levels: Floats

    def __len__(self) -> int:
        """How many replicates there are."""
        return len(self.slopes)

    def curves(self, replicate: int) -> dict[str, Curve]:
        """The curves of one replicate."""
        values = (array[replicate].tolist() for array in (self.levels, self.slopes, self.exponents))
        return {
            label: Curve(exposure=exposure, level=level, slope=slope, exponent=exponent)
            for label, exposure, level, slope, exponent in zip(self.labels, self.exposures, *values, strict=True)
        }


def refit(
    label: str, rows: Floats, exposures: tuple[int, ...], fitted: Shape, *, resamples: int, seed: int, run_sd: float
) -> Refits:
    """Fit one source again to resampled records.

    Args:
        label: the source, which with the seed names the streams.
        rows: its NLLs, shape (E, C).
        exposures: shape (E,).
        fitted: the shape that was fitted; a power law's exponent is sought again.
        resamples: R.
        seed: the bootstrap seed.
        run_sd: by how much a mean differs from one training to the next, nats.
    """
    means = paired_means(rows, named_stream("learning-curve", seed, label), resamples)
    if run_sd:
        means = means + run_sd * _normal(named_stream("run", seed, label), means.shape)
    shapes = _best_shapes(exposures, means) if fitted.exponent else [fitted] * resamples
    centres = _weighted(means, np.full((1, len(exposures)), 1 / len(exposures)))
    return Refits(
        exponents=np.array([one.exponent for one in shapes]),
        slopes=_weighted(means, np.array([one.slope_weights for one in shapes])),
        centres=centres,
        reaches=np.array([one.reach for one in shapes]),
    )


def refitted_curves(refits: Mapping[str, Refits], exposures: Sequence[int]) -> Replicates:
    """The curves of all sources as each replicate measures them, slopes clipped at 0.

    They aren't drawn together: shrunk ones would vary less than what is known of a slope, and around another centre
    than the true one.

    Args:
        refits: by label in code-point order.
        exposures: at which level and slope are taken, shape (K,).
    """
    slopes, centres, reaches, exponents = (
        np.stack([getattr(one, name) for one in refits.values()], axis=1)
        for name in ("slopes", "centres", "reaches", "exponents")
    )
    slopes = np.maximum(slopes, 0.0)
    return Replicates(
        labels=list(refits), exposures=exposures, exponents=exponents, slopes=slopes, levels=centres + slopes * reaches
    )


def best_shape(exposures: tuple[int, ...], means: Sequence[float]) -> Shape:
    """The power law whose exponent fits means best, of equal ones the one that is nearest to log-linear."""
    return min((shape(exposures, exponent) for exponent in EXPONENTS), key=lambda one: one.misfit(means))


def standard_deviation(values: Sequence[float]) -> float:
    """Around the mean, ddof 1."""
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def _best_shapes(exposures: tuple[int, ...], means: Floats) -> list[Shape]:
    """`best_shape` of each row."""
    shapes = [shape(exposures, exponent) for exponent in EXPONENTS]
    misfits = np.stack(
        [
            sum((_weighted(means, np.array([row])) ** 2 for row in one.residual_weights), np.zeros(len(means)))
            for one in shapes
        ]
    )
    return [shapes[number] for number in misfits.argmin(axis=0)]


def _weighted(means: Floats, weights: Floats) -> Floats:
    """Sums over the exposures, shape (R,), added one by one so that every machine rounds alike."""
    total = np.zeros(len(means))
    for column in range(means.shape[1]):
        total = total + means[:, column] * weights[:, column]
    return total


def _normal(stream: np.random.Philox, size: tuple[int, ...]) -> Floats:
    """Numbers of mean 0 and variance 1, the same bits everywhere."""
    draws = stream.random_raw(math.prod(size) * _UNIFORMS).reshape(*size, _UNIFORMS) >> np.uint64(32)
    normal: Floats = draws.astype(np.int64).sum(axis=-1) / 2.0**32 - _UNIFORMS / 2
    return normal

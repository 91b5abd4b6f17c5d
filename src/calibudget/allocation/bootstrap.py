"""How far a calibration mean can be trusted: bootstrap means and their standard deviation, the same bits everywhere."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import AllocationError
from calibudget.keys import bootstrap_stream

#: Replicates of the paper.
RESAMPLES = 200
# Sums of a resample stay below this, so that 64-bit integers hold them and order of addition doesn't matter.
_SUM_BITS = 62


def bootstrap_means(
    errors: Sequence[float], label: str, *, resamples: int = RESAMPLES, seed: int
) -> NDArray[np.float64]:
    """Means of resamples of one source's calibration errors, shape (R,), float64.

    The errors are sorted ascending and put on a fixed-point grid fine enough that a resample's sum fills 62
    bits: its addition is then exact in any order, so the bits don't depend on the platform. Draw i of replicate r
    is ((raw >> 32) * C) >> 32 of the (r * C + i)-th 64-bit output of the source's own stream.

    Args:
        errors: z_i, shape (C,), finite, at least 2; their order doesn't matter.
        label: the source, which with the seed names the stream.
        resamples: R, at least 1.
        seed: the bootstrap seed.

    Raises:
        AllocationError: fewer than two errors, or one that isn't finite.

    Source: paper 2.2, the 200 bootstrap means behind sigma_k.
    """
    values = np.sort(np.asarray(errors, dtype=np.float64))
    size = len(values)
    if size < 2:
        raise AllocationError(f"{label!r} has {size} calibration errors; a bootstrap needs at least 2")
    if not np.isfinite(values).all():
        raise AllocationError(f"{label!r} has a calibration error that isn't finite")
    shift = _SUM_BITS - size.bit_length() - math.frexp(float(np.abs(values).max()))[1]
    grid = np.rint(np.ldexp(values, shift)).astype(np.int64)
    raw = bootstrap_stream(seed, label).random_raw(resamples * size)
    index = ((raw >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)
    sums = grid[index.astype(np.intp)].reshape(resamples, size).sum(axis=1)
    means: NDArray[np.float64] = np.ldexp(sums.astype(np.float64) / size, -shift)
    return means


def bootstrap_sd(means: Sequence[float] | NDArray[np.float64]) -> float:
    """sigma_k: standard deviation (ddof 0) of the bootstrap means, correctly rounded from the exact variance.

    Args:
        means: shape (R,), finite, at least 1.

    Source: paper 2.2, sigma_k.
    """
    return statistics.pstdev(float(mean) for mean in means)

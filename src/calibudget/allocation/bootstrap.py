"""How far a calibration mean can be trusted: bootstrap means and their standard deviation, the same bits everywhere.

All sums are of integers, so no order of addition rounds them and no platform differs: errors stand on a fixed-point
grid when they are resampled, and means on another when their spread is taken.

From scores to statistics: one row a source, from its own calibration records alone.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibudget.allocation.exact.numbers import as_count, mean_of
from calibudget.allocation.source_labels import listed, require_same_labels
from calibudget.errors import AllocationError, ScoringError
from calibudget.keys import bootstrap_streams
from calibudget.messages import first_of, shown
from calibudget.records import Bootstrap, ErrorRule, Score, SourceStatistics, Statistics
from calibudget.sequences import chunks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Replicates of the paper.
RESAMPLES: Final = 200
#: More replicates than these tell nothing more, and would fill the memory.
MOST_RESAMPLES: Final = 10**6
# Sums of a resample stay below 2**62, so that 64-bit integers hold them.
_SUM_BITS: Final = 62
# Random numbers drawn at a time, so that memory stays small and in the cache.
_DRAWS: Final = 2**15
# Sources whose spreads are taken at a time.
_SOURCES: Final = 64
# Differences of means below 2**52 are squared in halves of 26 bits, so that the squares sum up without overflow.
_GAP_BITS: Final = 52
_HALF: Final = 26
# Bits of a root that are computed: a double's 53 and some more, so that the lowest one doesn't touch them.
_ROOT_BITS: Final = 64


def bootstrap(
    errors: Iterable[tuple[str, Sequence[float] | Floats]], *, resamples: int = RESAMPLES, seed: int
) -> Iterator[tuple[Floats, float]]:
    """Means of resamples of each source's calibration errors (shape (R,), float64), and sigma_k, in little memory.

    The errors of a label, which with the seed names its stream, have shape (C,), 1 <= C < 2**32, finite; they are
    sorted ascending and put on a grid so fine that the largest possible sum of a resample has 62 bits. Draw i of
    replicate r is ((raw >> 32) * C) >> 32 of the (r * C + i)-th 64-bit output of the source's own stream. sigma_k is
    the standard deviation (ddof 0) of the means, correctly rounded from their exact variance.

    Source: paper 2.2, the 200 bootstrap means behind sigma_k.
    """
    if not 1 <= as_count(resamples, "resamples") <= MOST_RESAMPLES:
        raise AllocationError(f"resamples must be from 1 to {MOST_RESAMPLES:,}, not {shown(resamples)}")
    stream = bootstrap_streams(seed)
    for batch in chunks(errors, _SOURCES):
        means = np.stack(
            [paired_means(np.sort(values)[np.newaxis], stream(label), resamples)[:, 0] for label, values in batch]
        )
        yield from zip(means, _standard_deviations(means), strict=True)


def paired_means(rows: Floats, stream: np.random.Philox, resamples: int) -> Floats:
    """Means, shape (R, E), of resamples that take the same records in every row, on a grid as in `bootstrap`.

    Rows (E, C) hold one measurement each of the same records in the same order, finite, C >= 1; `stream` is drawn from.
    """
    size = rows.shape[1]
    shifts = [_SUM_BITS - size.bit_length() - math.frexp(float(np.abs(row).max()))[1] for row in rows]
    grids = [np.rint(np.ldexp(row, shift)).astype(np.int64) for row, shift in zip(rows, shifts, strict=True)]
    sums = np.empty((resamples, len(grids)))
    step = max(1, _DRAWS // size)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        draws = stream.random_raw(count * size)
        draws >>= np.uint64(32)
        draws *= np.uint64(size)
        draws >>= np.uint64(32)
        for column, grid in enumerate(grids):
            # The indices are in range by construction; any mode but "raise" saves a copy and the check.
            drawn = grid.take(draws.view(np.int64), mode="wrap").reshape(count, size)
            sums[start : start + count, column] = drawn.sum(axis=1)
    means: Floats = np.ldexp(sums / size, [-shift for shift in shifts])
    return means


def _standard_deviations(means: Floats) -> list[float]:
    """Correctly rounded standard deviations of rows, shape (n, R) to (n,)."""
    replicates = means.shape[1]
    # The lowest bit of a row's smallest mean that isn't 0 is a unit in which all its means are integers.
    smallest = np.min(np.abs(means), axis=1, where=means != 0, initial=np.finfo(np.float64).max)
    units = np.maximum(np.frexp(smallest)[1] - 53, -1074)
    with np.errstate(over="ignore"):  # what overflows doesn't fit either
        scaled = np.ldexp(means, -units[:, np.newaxis])
    fits = np.abs(scaled).max(axis=1) < 2.0**_SUM_BITS
    integers = np.where(fits[:, np.newaxis], scaled, 0.0).astype(np.int64)
    gaps = integers - integers[:, :1]
    fits &= (np.abs(gaps).max(axis=1) < 2**_GAP_BITS) & (replicates < 2 ** (_SUM_BITS - _GAP_BITS))
    high, low = gaps >> _HALF, gaps & (2**_HALF - 1)
    sums = [array.sum(axis=1).tolist() for array in (gaps, high * high, high * low, low * low)]
    return [
        _root_of_variance(total, (squares << 2 * _HALF) + (mixed << (_HALF + 1)) + rest, replicates, unit)
        if whole
        else statistics.pstdev(row.tolist())
        for whole, unit, row, total, squares, mixed, rest in zip(
            fits.tolist(), units.tolist(), means, *sums, strict=True
        )
    ]


def _root_of_variance(total: int, squares: int, count: int, unit: int) -> float:
    """sqrt(squares / count - (total / count)**2) * 2**unit, correctly rounded unless it is subnormal."""
    variance = count * squares - total * total
    shift = max(0, _ROOT_BITS + count.bit_length() - variance.bit_length() // 2)
    quotient, rest = divmod(variance << 2 * shift, count * count)
    root = math.isqrt(quotient)
    # The lowest of these bits only tells the rounding whether anything was cut off.
    inexact = bool(rest) or root * root != quotient
    return math.ldexp(float(root | inexact), unit - shift)


#: Fewer calibration records than this are warned of.
FEW_RECORDS: Final = 30


class SmallCalibrationWarning(UserWarning):
    """A source has so few calibration records that its bootstrap sd says little."""


def summarise(
    scores: Iterable[Score],
    pool_sizes: Mapping[str, int],
    *,
    model: Mapping[str, object],
    error: ErrorRule,
    resamples: int = RESAMPLES,
    bootstrap_seed: int,
    keep_means: bool = True,
) -> Statistics:
    """The calibration statistics of every source.

    Args:
        scores: all calibration records' scores, in any order, each sound under the rule.
        pool_sizes: N_k of every source.
        model: what the scores were made with; kept as it is.
        error: the rule that the scores' errors follow.
        resamples: bootstrap replicates R, at least 1.
        bootstrap_seed: seed of the sources' bootstrap streams.
        keep_means: whether to keep the replicate means, which intervals are made from.

    Raises:
        AllocationError: resamples out of range, other sources than the pool sizes', or errors that overflow a double.
        ScoringError: a source with fewer than 2 scores.

    Warns:
        SmallCalibrationWarning: sources with fewer than 30 scores.

    Source: paper 2.2, m_k and sigma_k.
    """
    by_source: dict[str, list[Score]] = {}
    for score in scores:
        by_source.setdefault(score.source, []).append(score)
    require_same_labels(pool_sizes, by_source, "the scores", "the pool sizes")
    labels = sorted(by_source)
    short = [label for label in labels if len(by_source[label]) < 2]
    if short:
        raise ScoringError(f"fewer than 2 calibration scores, too few for a spread: {listed(short)}")
    few = [f"{label} ({len(by_source[label])})" for label in labels if len(by_source[label]) < FEW_RECORDS]
    if few:
        message = f"fewer than {FEW_RECORDS} calibration records, so their bootstrap sd says little: {first_of(few, 5)}"
        warnings.warn(message, SmallCalibrationWarning, stacklevel=2)
    errors = ((label, [score.error for score in by_source[label]]) for label in labels)
    spreads = bootstrap(errors, resamples=resamples, seed=bootstrap_seed)
    sources = {
        label: _row(pool_sizes[label], by_source[label], sd, tuple(means.tolist()) if keep_means else None)
        for label, (means, sd) in zip(labels, spreads, strict=True)
    }
    made_with = Bootstrap(resamples=resamples, seed=bootstrap_seed)
    return Statistics(model=model, error=error, bootstrap=made_with, sources=sources)


def _row(pool_size: int, scores: Sequence[Score], sd: float, means: tuple[float, ...] | None) -> SourceStatistics:
    source, verdicts = scores[0].source, [score.correct for score in scores]
    return SourceStatistics(
        pool_size=pool_size,
        calibration_size=len(scores),
        mean_nll=mean_of([score.nll for score in scores], f"the NLLs of {source!r}"),
        error_rate=None if None in verdicts else verdicts.count(False) / len(scores),
        mean_error=mean_of([score.error for score in scores], f"the errors of {source!r}"),
        bootstrap_sd=sd,
        bootstrap_means=means,
    )

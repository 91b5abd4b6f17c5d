"""How far a calibration mean can be trusted: bootstrap means and their standard deviation, the same bits everywhere.

All sums are of integers, so no order of addition rounds them and no platform differs: errors stand on a fixed-point
grid when they are resampled, and means on another when their spread is taken.

From scores to statistics: one row a source, from its own calibration records alone.
"""

from __future__ import annotations

import math
import statistics
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calibudget.allocation.exact.numbers import as_count, as_doubles
from calibudget.allocation.labels import listed, require_same_labels, require_text, sorted_labels
from calibudget.errors import AllocationError, InputTypeError, ScoringError
from calibudget.keys import bootstrap_streams
from calibudget.messages import counted, shown
from calibudget.records import ErrorRule, Score, SourceStatistics, Statistics, error_of
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


def bootstrap_means(errors: Sequence[float] | Floats, label: str, *, resamples: int = RESAMPLES, seed: int) -> Floats:
    """Means of resamples of one source's calibration errors, shape (R,), float64.

    The errors are sorted ascending and put on a grid so fine that the largest possible sum of a resample has 62
    bits. Draw i of replicate r is ((raw >> 32) * C) >> 32 of the (r * C + i)-th 64-bit output of the source's own
    stream.

    Args:
        errors: z_i, shape (C,), finite, 2 <= C < 2**32; their order doesn't matter.
        label: the source, which with the seed names the stream.
        resamples: R, at least 1.
        seed: the bootstrap seed.

    Raises:
        InputTypeError: errors that aren't numbers.
        AllocationError: fewer than two errors, or one that isn't finite.

    Source: paper 2.2, the 200 bootstrap means behind sigma_k.
    """
    ((means, _),) = bootstrap([(label, errors)], resamples=resamples, seed=seed)
    return means


def bootstrap_sd(means: Sequence[float] | Floats) -> float:
    """sigma_k: standard deviation (ddof 0) of the bootstrap means, correctly rounded from their exact variance.

    Args:
        means: shape (R,), finite, at least 1.

    Source: paper 2.2, sigma_k.
    """
    values = as_doubles(means, "bootstrap means")
    if not values:
        raise AllocationError("a standard deviation needs at least one bootstrap mean")
    return _standard_deviations(np.array(values)[np.newaxis])[0]


def bootstrap(
    errors: Iterable[tuple[str, Sequence[float] | Floats]], *, resamples: int = RESAMPLES, seed: int
) -> Iterator[tuple[Floats, float]]:
    """Bootstrap means (shape (R,)) and their standard deviation, source by source, in little memory.

    Args:
        errors: labels and calibration errors, as `bootstrap_means` takes them.
        resamples: R, at least 1.
        seed: the bootstrap seed.
    """
    resamples = as_resamples(resamples)
    stream = bootstrap_streams(seed)
    for batch in chunks(errors, _SOURCES):
        means = np.stack([_means(_sorted(values, label), stream(label), resamples) for label, values in batch])
        yield from zip(means, _standard_deviations(means), strict=True)


def as_resamples(value: object) -> int:
    """A number of replicates.

    Raises:
        InputTypeError, AllocationError: not an integer from 1 to `MOST_RESAMPLES`.
    """
    resamples = as_count(value, "resamples")
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise AllocationError(f"resamples must be from 1 to {MOST_RESAMPLES:,}, not {shown(resamples)}")
    return resamples


def _sorted(errors: Sequence[float] | Floats, label: str) -> Floats:
    values = np.sort(as_doubles(errors, "calibration errors", label))
    if len(values) < 2:
        raise AllocationError(
            f"{label!r} has {counted(len(values), 'calibration error')}; a bootstrap needs at least 2"
        )
    return values


def _means(values: Floats, stream: np.random.Philox, resamples: int) -> Floats:
    return paired_means(values[np.newaxis], stream, resamples)[:, 0]


def paired_means(rows: Floats, stream: np.random.Philox, resamples: int) -> Floats:
    """Means of resamples that take the same records in every row, on a grid as in `bootstrap_means`.

    Args:
        rows: one measurement a row of the same records in the same order, shape (E, C), finite, C >= 1.
        stream: where the draws come from.
        resamples: R.

    Returns:
        Shape (R, E), float64.
    """
    size = rows.shape[1]
    shifts = [_SUM_BITS - size.bit_length() - math.frexp(float(np.abs(row).max()))[1] for row in rows]
    grids = [np.rint(np.ldexp(row, shift)).astype(np.int64) for row, shift in zip(rows, shifts, strict=True)]
    sums = np.empty((resamples, len(grids)), dtype=np.int64)
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
    means: Floats = np.ldexp(sums.astype(np.float64) / size, [-shift for shift in shifts])
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
        scores: all calibration records' scores, in any order.
        pool_sizes: N_k of every source.
        model: what the scores were made with; kept as it is.
        error: the rule that the scores' errors follow.
        resamples: bootstrap replicates R, at least 1.
        bootstrap_seed: seed of the sources' bootstrap streams.
        keep_means: whether to keep the replicate means, which intervals are made from.

    Raises:
        InputTypeError: a score that isn't one, or a field of it of the wrong type.
        AllocationError: resamples out of range, or other sources than the pool sizes'.
        ScoringError: a value that isn't finite, values that sum to more than a double holds, an error that isn't what
            the rule says, an unknown rule, an unchecked answer where the rule counts wrong ones, or a source with fewer
            than 2 scores.

    Warns:
        SmallCalibrationWarning: sources with fewer than 30 scores.

    Source: paper 2.2, m_k and sigma_k.
    """
    labels = sorted_labels(pool_sizes)
    sizes = {label: as_count(pool_sizes[label], "the pool size", label) for label in labels}
    resamples = as_resamples(resamples)
    by_source = _by_source(scores, error, labels)
    errors = ((label, [score.error for score in by_source[label]]) for label in labels)
    spreads = bootstrap(errors, resamples=resamples, seed=bootstrap_seed)
    return Statistics(
        model=model,
        error=error,
        resamples=resamples,
        bootstrap_seed=bootstrap_seed,
        sources={
            label: SourceStatistics(
                pool_size=sizes[label],
                calibration_size=len(by_source[label]),
                mean_nll=_mean(by_source[label], "nll"),
                error_rate=_error_rate(by_source[label]),
                mean_error=_mean(by_source[label], "error"),
                bootstrap_sd=sd,
                bootstrap_means=tuple(means.tolist()) if keep_means else None,
            )
            for label, (means, sd) in zip(labels, spreads, strict=True)
        },
    )


def _by_source(scores: Iterable[Score], rule: ErrorRule, labels: Sequence[str]) -> dict[str, list[Score]]:
    """The scores of each source, every one sound under the rule, of each source enough for a spread."""
    require_text(rule, "the error rule")
    if rule not in get_args(ErrorRule):
        raise ScoringError(f"the error rule is {rule!r}, but only {', '.join(get_args(ErrorRule))} are known")
    try:
        every = iter(scores)
    except TypeError as error:
        raise InputTypeError(f"scores must be a sequence of them, not {shown(scores)}") from error
    by_source: dict[str, list[Score]] = {}
    for score in every:
        _require_sound(score, rule)
        by_source.setdefault(score.source, []).append(score)
    require_same_labels(labels, by_source, "the scores", "the pool sizes")
    _judge_counts({label: len(by_source[label]) for label in labels})
    return by_source


def _mean(scores: Sequence[Score], field: Literal["nll", "error"]) -> float:
    numbers = {"nll": [score.nll for score in scores], "error": [score.error for score in scores]}[field]
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        number, worst = max(zip(numbers, scores, strict=True), key=lambda pair: abs(pair[0]))
        raise ScoringError(
            f"the {field} of {worst.source!r} sums to more than the largest double; "
            f"record {shown(worst.record_id)} has {number:g}, which no model gives"
        ) from None


def _error_rate(scores: Sequence[Score]) -> float | None:
    """Share of wrong answers; None where any answer is unchecked."""
    if any(score.correct is None for score in scores):
        return None
    return sum(not score.correct for score in scores) / len(scores)


def _require_sound(score: Score, rule: ErrorRule) -> None:
    if not isinstance(score, Score):
        raise InputTypeError(f"a score must be a Score, not {shown(score)} ({type(score).__name__})")
    require_text(score.source, "the source of a score")
    where = f"the score of record {shown(score.record_id)} of {score.source!r}"
    if not isinstance(score.correct, bool | None):
        raise InputTypeError(f"{where} has correct {shown(score.correct)}, which must be a bool or None")
    both = f"nll {shown(score.nll)}, error {shown(score.error)}"
    if not all(isinstance(number, float | int) for number in (score.nll, score.error)):
        raise InputTypeError(f"{where} isn't of numbers: {both}")
    if not all(abs(number) <= sys.float_info.max for number in (score.nll, score.error)):
        raise ScoringError(f"{where} isn't finite: {both}")
    if rule == "nll+wrong" and score.correct is None:
        raise ScoringError(f"{where} has no checked answer, but the error rule nll+wrong needs one: choose error: nll")
    if rule == "nll_per_answer" and not score.response_tokens:
        raise ScoringError(f"{where} has no response_tokens, which the error rule nll_per_answer multiplies by")
    expected = error_of(rule, nll=score.nll, response_tokens=score.response_tokens, correct=score.correct)
    if score.error != expected:
        raise ScoringError(f"{where} has error {score.error}, but the error rule {rule} gives {expected}")


def _judge_counts(counts: Mapping[str, int]) -> None:
    short = [label for label, count in counts.items() if count < 2]
    if short:
        raise ScoringError(f"fewer than 2 calibration scores, too few for a spread: {listed(short)}")
    few = [f"{label} ({count})" for label, count in counts.items() if count < FEW_RECORDS]
    if few:
        message = f"fewer than {FEW_RECORDS} calibration records, so their bootstrap sd says little: {listed(few)}"
        warnings.warn(message, SmallCalibrationWarning, stacklevel=4)

"""From scores to statistics: one row a source, from its own calibration records alone."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, get_args

from calibudget.allocation.apportionment import listed, require_same_labels, require_text, sorted_labels
from calibudget.allocation.bootstrap import RESAMPLES, as_resamples, bootstrap
from calibudget.allocation.exact import as_count
from calibudget.errors import InputTypeError, ScoringError
from calibudget.records import ErrorRule, Score, SourceStatistics, Statistics
from calibudget.wording import shown

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
    require_text(error, "the error rule")
    if error not in get_args(ErrorRule):
        raise ScoringError(f"the error rule is {error!r}, but only {', '.join(get_args(ErrorRule))} are known")
    by_source: dict[str, list[Score]] = {}
    for score in _each(scores):
        _require_sound(score, error)
        by_source.setdefault(score.source, []).append(score)
    if by_source.keys() != sizes.keys():
        require_same_labels(labels, by_source, "the scores", "the pool sizes")
    _judge_counts({label: len(by_source[label]) for label in labels})

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


def _each(scores: Iterable[Score]) -> Iterator[Score]:
    try:
        return iter(scores)
    except TypeError as error:
        raise InputTypeError(f"scores must be a sequence of them, not {shown(scores)}") from error


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
    expected = score.nll + (0 if rule == "nll" or score.correct else 1)
    if score.error != expected:
        raise ScoringError(f"{where} has error {score.error}, but the error rule {rule} gives {expected}")


def _judge_counts(counts: Mapping[str, int]) -> None:
    short = [label for label, count in counts.items() if count < 2]
    if short:
        raise ScoringError(f"fewer than 2 calibration scores, too few for a spread: {listed(short)}")
    few = [f"{label} ({count})" for label, count in counts.items() if count < FEW_RECORDS]
    if few:
        message = f"fewer than {FEW_RECORDS} calibration records, so their bootstrap sd says little: {listed(few)}"
        warnings.warn(message, SmallCalibrationWarning, stacklevel=3)

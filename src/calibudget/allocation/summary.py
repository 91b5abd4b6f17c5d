"""From scores to statistics: one row a source, from its own calibration records alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from calibudget.allocation.apportionment import listed, require_same_labels, sorted_labels
from calibudget.allocation.bootstrap import RESAMPLES, bootstrap
from calibudget.allocation.exact import as_count
from calibudget.errors import ScoringError
from calibudget.records import ErrorRule, Score, SourceStatistics, Statistics

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
        ScoringError: a value that isn't finite, an error that isn't what the rule says, an unchecked answer where
            the rule counts wrong ones, a source without pool size or with fewer than 2 scores.

    Warns:
        SmallCalibrationWarning: sources with fewer than 30 scores.

    Source: paper 2.2, m_k and sigma_k.
    """
    labels = sorted_labels(pool_sizes)
    sizes = {label: as_count(pool_sizes[label], "the pool size", label) for label in labels}
    resamples = as_count(resamples, "resamples")
    if not resamples:
        raise ScoringError("resamples must be at least 1")
    by_source: dict[str, list[Score]] = {}
    for score in scores:
        _require_sound(score, error)
        by_source.setdefault(score.source, []).append(score)
    if by_source.keys() != sizes.keys():
        require_same_labels(labels, by_source, "the scores")
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
                mean_nll=_mean([score.nll for score in by_source[label]]),
                error_rate=_error_rate(by_source[label]),
                mean_error=_mean([score.error for score in by_source[label]]),
                bootstrap_sd=sd,
                bootstrap_means=tuple(means.tolist()) if keep_means else None,
            )
            for label, (means, sd) in zip(labels, spreads, strict=True)
        },
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _error_rate(scores: Sequence[Score]) -> float | None:
    """Share of wrong answers; None where any answer is unchecked."""
    if any(score.correct is None for score in scores):
        return None
    return sum(not score.correct for score in scores) / len(scores)


def _require_sound(score: Score, rule: ErrorRule) -> None:
    where = f"the score of record {score.record_id!r} of {score.source!r}"
    if not (math.isfinite(score.nll) and math.isfinite(score.error)):
        raise ScoringError(f"{where} isn't finite: nll {score.nll}, error {score.error}")
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

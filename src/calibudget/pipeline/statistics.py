"""`calibudget statistics`: statistics from scores and pool sizes, ours or made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calibudget.allocation.bootstrap import summarise
from calibudget.errors import InputError
from calibudget.records import ErrorRule, Statistics
from calibudget.store.scores import ScoreFile, read_scores_file


def statistics_of_file(
    *scores: Path,
    pool_sizes: dict[str, int],
    error: ErrorRule | None = None,
    verdict: str | None = None,
    resamples: int = 200,
    bootstrap_seed: int = 42,
) -> Statistics:
    """The statistics of a scores file, or of several that are joined by record (paper 2.2); see `read_scores_file`.

    Raises:
        InputError: sources differ from the pool sizes'; both are named.
        ScoringError, AllocationError: sources have too few scores, or scores out of range.
    """
    found = read_scores_file(*scores, error=error, verdict=verdict)
    scored, file = {score.source for score in found.scores}, scores[0].name
    for label in sorted(scored ^ pool_sizes.keys()):
        if label in scored:
            raise InputError(f"--pool-sizes: lacks {label!r}, which {file} has scores of; add {label}=<its size>")
        raise InputError(f"{file}: has no scores of {label!r}, which --pool-sizes names; score it, or leave it out")
    return statistics_of(found, pool_sizes, resamples=resamples, bootstrap_seed=bootstrap_seed)


def statistics_of(
    scored: ScoreFile, pool_sizes: Mapping[str, int], *, resamples: int, bootstrap_seed: int
) -> Statistics:
    """The statistics of scores, by the rule and of the model that they name; see `summarise`."""
    return summarise(
        scored.scores,
        pool_sizes,
        model=scored.model,
        error=scored.error,
        resamples=resamples,
        bootstrap_seed=bootstrap_seed,
    )

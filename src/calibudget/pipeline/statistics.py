"""`calibudget statistics`: statistics from scores and pool sizes, ours or made elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibudget.allocation.statistics import summarise
from calibudget.errors import InputError
from calibudget.records import ErrorRule, Statistics
from calibudget.store.canonical import read_object
from calibudget.store.scores import ScoreFile, read_scores_file
from calibudget.store.splits import read_splits


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
        ArtefactError: the file or a row of it can't be used.
        InputError: sources differ from the pool sizes'; both are named.
        ScoringError, AllocationError: sources have too few scores, or scores out of range.
    """
    found = read_scores_file(*scores, error=error, verdict=verdict)
    _check_same_sources(found, pool_sizes, scores[0])
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


def _check_same_sources(scores: ScoreFile, pool_sizes: Mapping[str, int], file: Path) -> None:
    scored = {score.source for score in scores.scores}
    for label in sorted(scored ^ pool_sizes.keys()):
        if label in scored:
            raise InputError(f"--pool-sizes: lacks {label!r}, which {file.name} has scores of; add {label}=<its size>")
        raise InputError(
            f"{file.name}: has no scores of {label!r}, which --pool-sizes names; score it, or leave it out"
        )


def read_pool_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Pool sizes from `label=n` texts, JSON objects of them, and `splits.parquet` files, together.

    Raises:
        InputError: a text that is none of these, a size that isn't a nonnegative integer, or a label given twice.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        for label, size in _pool_sizes(text):
            if label in sizes:
                raise InputError(f"--pool-sizes names {label!r} twice")
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise InputError(f"--pool-sizes: the size of {label!r} is {size!r}, not a nonnegative integer")
            sizes[label] = size
    return sizes


def _pool_sizes(text: str) -> list[tuple[str, object]]:
    path = Path(text)
    if path.suffix == ".parquet":
        return list(read_splits(path).pool_sizes.items())
    if path.is_file():
        return list(read_object(path).items())
    # several in one text; a label may hold spaces, a number none
    return [_pool_size(part) for part in re.findall(r"\S.*?=[^\s=]*(?=\s|$)|\S.*", text, re.DOTALL) or [text]]


def _pool_size(text: str) -> tuple[str, int]:
    label, equals, number = text.rpartition("=")
    if not equals or not label:
        raise InputError(f"--pool-sizes {text!r}: neither label=n nor a file")
    if not (number.isascii() and number.isdigit()):
        raise InputError(f"--pool-sizes {text!r}: {number!r} isn't a nonnegative integer")
    return label, int(number)

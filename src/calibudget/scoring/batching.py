"""Batches as a function of the data and a token bound alone, never of memory, devices or workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one item weighs in a batch.

    Attributes:
        tokens: prompt and response tokens.
        response_tokens: rows of logits.
        limit: most tokens that may be decoded for it.
        source: label of its source.
        record_id: breaks ties.
    """

    tokens: int
    response_tokens: int
    limit: int
    source: str
    record_id: str


def plan_batches(loads: Sequence[Load], batch_tokens: int) -> list[tuple[int, ...]]:
    """Part items, given by index, into batches of at most `batch_tokens` tokens, in a fixed order.

    Items that may be decoded equally far go together, so that none waits long for another; then those of one source,
    whose prompts begin alike; then those of like length. A batch has at most a quarter of `batch_tokens` as rows of
    logits, which bounds its memory. An item that is larger than a bound has a batch of its own.
    """
    order = sorted(range(len(loads)), key=lambda i: _order(loads[i]))
    batches: list[list[int]] = []
    tokens = rows = 0
    for index in order:
        load = loads[index]
        full = tokens + load.tokens > batch_tokens or rows + load.response_tokens > batch_tokens // 4
        if full or not batches:
            batches.append([])
            tokens = rows = 0
        batches[-1].append(index)
        tokens, rows = tokens + load.tokens, rows + load.response_tokens
    return [tuple(batch) for batch in batches]


def _order(load: Load) -> tuple[int, str, int, str]:
    return load.limit, load.source, load.tokens, load.record_id


def cut(weights: Sequence[int], bound: int) -> list[range]:
    """Consecutive runs of items whose weights sum to at most `bound`, or single items above it."""
    runs: list[range] = []
    start, total = 0, 0
    for index, weight in enumerate(weights):
        if index > start and total + weight > bound:
            runs.append(range(start, index))
            start, total = index, 0
        total += weight
    if weights:
        runs.append(range(start, len(weights)))
    return runs

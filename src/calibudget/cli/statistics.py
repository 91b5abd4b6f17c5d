"""`calibudget statistics`: statistics.json from scores, ours or made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.records import ErrorRule


def command(
    scores: Annotated[Path, typer.Argument(help="Scores, Parquet or JSONL (source, nll, correct[, record_id]).")],
    pool_sizes: Annotated[
        list[str],
        typer.Option(help="label=n, or a JSON object of them, or a splits.parquet; may repeat."),
    ],
    error: Annotated[ErrorRule | None, typer.Option(help="nll+wrong or nll; default as scored.")] = None,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap means per source.")] = 200,
    bootstrap_seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap streams.")] = 42,
    warm_ups: Annotated[
        Path | None,
        typer.Option(help="Warm-ups, Parquet or JSONL (source, exposure, record_id, nll); their slopes are added."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
) -> None:
    """Turn a scores file into the statistics that the allocator takes."""
    from calibudget.pipeline import read_pool_sizes, statistics_of_file
    from calibudget.store import statistics_bytes, write_atomic

    statistics = statistics_of_file(
        scores,
        pool_sizes=read_pool_sizes(pool_sizes),
        error=error,
        resamples=resamples,
        bootstrap_seed=bootstrap_seed,
        warm_ups=warm_ups,
    )
    data = statistics_bytes(statistics)
    if output is None:
        typer.echo(data.decode())
    else:
        write_atomic(output, data)

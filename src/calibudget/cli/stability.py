"""`calibudget stability`: how far quotas move with the calibration split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import (
    Caps,
    Floors,
    Groups,
    Json,
    MaxRepeats,
    NeedTransform,
    PoolSizes,
    Signal,
    amount,
    mapping,
    named_amounts,
    whole_number,
)


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A statistics.json or a scores file for each split.")
    ],
    budget: Annotated[str, typer.Option(help="Examples to allocate, an integer.")] = ...,  # type: ignore[assignment]
    floor: Annotated[str, typer.Option(help="Minimum of every source: an integer, or '10% of budget'.")] = "0",
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy to audit; may repeat. [those that need scores]")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="How surely pairs of sources keep their order.")] = False,
    pool_sizes: PoolSizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    signal: Signal = "error_rate",
    need_exponent: Annotated[float, typer.Option()] = 1.0,
    availability_exponent: Annotated[float, typer.Option()] = 0.5,
    reliability_exponent: Annotated[float, typer.Option()] = 1.0,
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap means per source of a scores file.")] = 200,
    bootstrap_seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap streams.")] = 42,
    as_json: Json = False,
) -> None:
    """Compare the quotas that independently drawn calibration splits of the same sources lead to."""
    from calibudget.cli.grids import print_audit
    from calibudget.pipeline import AllocationInputs, audit, read_measured, read_pool_sizes
    from calibudget.records import Exponents

    sizes = read_pool_sizes(pool_sizes) if pool_sizes else None
    measured = [
        read_measured(path, pool_sizes=sizes, resamples=resamples, bootstrap_seed=bootstrap_seed) for path in files
    ]
    inputs = AllocationInputs(
        pool_sizes={},
        budget=whole_number(budget, "--budget"),
        floor=amount(floor),
        floors=named_amounts(floors, "--floors"),
        caps=named_amounts(caps, "--caps"),
        groups=mapping(groups, "--groups"),
        signal=signal,  # type: ignore[arg-type]
        exponents=Exponents(need=need_exponent, availability=availability_exponent, reliability=reliability_exponent),
        need_transform=need_transform,
    )
    found = audit(measured, inputs, policies=policy or (), pairs=pairs, max_repeats=max_repeats)
    print_audit(found, as_json=as_json)

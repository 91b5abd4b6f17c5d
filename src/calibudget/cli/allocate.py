"""`calibudget allocate`: quotas from statistics, or from pool sizes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json, named_integers, named_numbers


def command(
    statistics: Annotated[Path | None, typer.Argument(metavar="[STATISTICS]", help="A statistics.json.")] = None,
    budget: Annotated[str, typer.Option(help="Examples to allocate, an integer.")] = ...,  # type: ignore[assignment]
    floor: Annotated[str, typer.Option(help="Guaranteed minimum of every source, an integer.")] = "0",
    policy: Annotated[str, typer.Option(help="How the budget above the floor is spent.")] = "calibudget",
    sizes: Annotated[
        list[str] | None, typer.Option(help="label=n pool sizes, for policies that need no statistics; may repeat.")
    ] = None,
    floors: Annotated[list[str] | None, typer.Option(help="label=n floors of single sources; may repeat.")] = None,
    caps: Annotated[list[str] | None, typer.Option(help="label=n caps of single sources; may repeat.")] = None,
    weights: Annotated[list[str] | None, typer.Option(help="label=x weights for --policy weights.")] = None,
    signal: Annotated[str, typer.Option(help="What val-error-floor takes: error_rate or z.")] = "error_rate",
    need_exponent: Annotated[float, typer.Option()] = 1.0,
    availability_exponent: Annotated[float, typer.Option()] = 0.5,
    reliability_exponent: Annotated[float, typer.Option()] = 1.0,
    need_transform: Annotated[str | None, typer.Option(help="rank or log1p.")] = None,
    max_repeats: Annotated[int, typer.Option(min=1, help="How often an example may be drawn; multiplies pools.")] = 1,
    compare: Annotated[bool, typer.Option("--compare", help="Every policy side by side.")] = False,
    splits: Annotated[Path | None, typer.Option(help="A splits.parquet, for the pooled policy.")] = None,
    as_json: Json = False,
) -> None:
    """Show exact integer quotas; with --json the allocation.json object."""
    from calibudget.cli.tables import print_comparison, print_plan
    from calibudget.errors import InputError
    from calibudget.pipeline import compare_policies, inputs_from_files, plan_allocation
    from calibudget.records import Exponents

    if (statistics is None) == (not sizes):
        raise InputError("give a STATISTICS file or --sizes label=n, one of the two")
    inputs = inputs_from_files(
        statistics=statistics,
        sizes=named_integers(sizes, "--sizes"),
        splits=splits,
        max_repeats=max_repeats,
        budget=_integer(budget, "--budget"),
        floor=_integer(floor, "--floor"),
        floors=named_integers(floors, "--floors"),
        caps=named_integers(caps, "--caps"),
        weights=named_numbers(weights, "--weights"),
        signal=signal,
        exponents=Exponents(need=need_exponent, availability=availability_exponent, reliability=reliability_exponent),
        need_transform=need_transform,
    )
    if compare:
        print_comparison(compare_policies(inputs), as_json=as_json)
    else:
        print_plan(plan_allocation(policy, inputs), as_json=as_json)


def _integer(text: str, option: str) -> int:
    from calibudget.errors import InputError

    try:
        if not text.lstrip("-").isdigit() or not text.isascii():
            raise ValueError
        return int(text)
    except ValueError:
        raise InputError(f"{option} {text!r} isn't an integer; examples are counted whole") from None

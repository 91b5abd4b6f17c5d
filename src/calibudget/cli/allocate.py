"""`calibudget allocate`: quotas from statistics, or from pool sizes alone."""

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
    Signal,
    Sizes,
    Splits,
    Unit,
    Weights,
    amount,
    mapping,
    named_amounts,
    named_integers,
    named_numbers,
    whole_number,
)


def command(
    statistics: Annotated[Path | None, typer.Argument(metavar="[STATISTICS]", help="A statistics.json.")] = None,
    budget: Annotated[str, typer.Option(help="What to allocate, an integer.")] = ...,  # type: ignore[assignment]
    floor: Annotated[str, typer.Option(help="Minimum of every source: an integer, or '10% of budget'.")] = "0",
    policy: Annotated[str, typer.Option(help="How the budget above the floor is spent.")] = "calibudget",
    sizes: Sizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    weights: Weights = None,
    importance: Annotated[
        list[str] | None, typer.Option(help="label=x worth of a nat, for learning-curve and least-nll; may repeat.")
    ] = None,
    curves: Annotated[Path | None, typer.Option(help="A curves.json, for the policy least-nll.")] = None,
    signal: Signal = "error_rate",
    need_exponent: Annotated[float, typer.Option()] = 1.0,
    availability_exponent: Annotated[float, typer.Option()] = 0.5,
    reliability_exponent: Annotated[float, typer.Option()] = 1.0,
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    compare: Annotated[bool, typer.Option("--compare", help="Other policies beside it.")] = False,
    splits: Splits = None,
    unit: Unit = "examples",
    as_json: Json = False,
) -> None:
    """Show exact integer quotas; with --json the allocation.json object."""
    from calibudget.cli.tables import print_comparison, print_plan
    from calibudget.pipeline import compare_policies, inputs_from_files, plan_allocation
    from calibudget.records import Exponents
    from calibudget.store import read_curves

    inputs = inputs_from_files(
        statistics=statistics,
        sizes=named_integers(sizes, "--sizes"),
        splits=splits,
        unit=unit,
        max_repeats=max_repeats,
        budget=whole_number(budget, "--budget"),
        floor=amount(floor),
        floors=named_amounts(floors, "--floors"),
        caps=named_amounts(caps, "--caps"),
        groups=mapping(groups, "--groups"),
        weights=named_numbers(weights, "--weights"),
        importance=named_numbers(importance, "--importance"),
        curves=None if curves is None else read_curves(curves).curves,
        signal=signal,
        exponents=Exponents(need=need_exponent, availability=availability_exponent, reliability=reliability_exponent),
        need_transform=need_transform,
    )
    if compare:
        print_comparison(compare_policies(inputs), as_json=as_json)
    else:
        print_plan(plan_allocation(policy, inputs), as_json=as_json)

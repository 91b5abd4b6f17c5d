"""`calibudget whatif`: quotas over a grid of budgets, floors and exponents."""

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
    listed,
    mapping,
    named_amounts,
    named_integers,
    named_numbers,
    numbers,
    whole_number,
)


def command(
    statistics: Annotated[Path | None, typer.Argument(metavar="[STATISTICS]", help="A statistics.json.")] = None,
    budget: Annotated[list[str], typer.Option(help="Budgets, integers; a list with commas, or repeated.")] = ...,  # type: ignore[assignment]
    floor: Annotated[list[str], typer.Option(help="Floors: integers, or '10% of budget'; likewise.")] = ["0"],  # noqa: B006
    need_exponent: Annotated[list[str], typer.Option(help="Exponents of the need; likewise.")] = ["1"],  # noqa: B006
    availability_exponent: Annotated[list[str], typer.Option(help="Of the availability.")] = ["0.5"],  # noqa: B006
    reliability_exponent: Annotated[list[str], typer.Option(help="Of the reliability.")] = ["1"],  # noqa: B006
    policy: Annotated[str, typer.Option(help="How the budget above the floor is spent.")] = "calibudget",
    sizes: Sizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    weights: Weights = None,
    signal: Signal = "error_rate",
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    splits: Splits = None,
    unit: Unit = "examples",
    as_json: Json = False,
) -> None:
    """Show the quotas at every combination of these budgets, floors and exponents."""
    from calibudget.cli.grids import print_grid
    from calibudget.pipeline import explore, exponent_grid, inputs_from_files

    budgets = [whole_number(text, "--budget") for text in listed(budget)]
    inputs = inputs_from_files(
        statistics=statistics,
        sizes=named_integers(sizes, "--sizes"),
        splits=splits,
        unit=unit,
        max_repeats=max_repeats,
        budget=budgets[0],
        floors=named_amounts(floors, "--floors"),
        caps=named_amounts(caps, "--caps"),
        groups=mapping(groups, "--groups"),
        weights=named_numbers(weights, "--weights"),
        signal=signal,
        need_transform=need_transform,
    )
    points = explore(
        policy,
        inputs,
        budgets=budgets,
        floors=[amount(text) for text in listed(floor)],
        exponents=exponent_grid(
            numbers(need_exponent, "--need-exponent"),
            numbers(availability_exponent, "--availability-exponent"),
            numbers(reliability_exponent, "--reliability-exponent"),
        ),
    )
    print_grid(policy, inputs.unit, points, as_json=as_json)

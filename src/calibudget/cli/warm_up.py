"""`calibudget warm-up`: small trainings that show how fast each source is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json, Overrides, RecipePath


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="The file to write; run --warm-ups takes it.")] = Path(
        "warm-ups.parquet"
    ),
    as_json: Json = False,
) -> None:
    """Train and score the warm-ups of a recipe (on a GPU machine, say); what is finished isn't done again."""
    from calibudget.cli.curve_tables import print_warm_ups
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.train import training_bar
    from calibudget.pipeline import warm_up
    from calibudget.recipe import load_recipe

    with progress_bar() as progress, training_bar() as listener:
        made = warm_up(load_recipe(recipe, overrides or ()), output, progress=progress, listener=listener)
    print_warm_ups(made, output, as_json=as_json)

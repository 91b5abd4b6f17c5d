"""`calibudget score`: only the scoring stage, so that it can go to another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Address, Engine, Json, Overrides, RecipePath, Workers, with_engine


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="The scores file to write.")] = Path("scores.parquet"),
    engine: Engine = None,
    workers: Workers = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Score the calibration split of every source; `run --scores` takes the file on any machine.

    Interrupted scoring goes on where it stopped when the command is given again.
    """
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_scores
    from calibudget.pipeline import score
    from calibudget.recipe import load_recipe

    loaded = load_recipe(recipe, with_engine(overrides, engine, workers, address))
    with progress_bar() as progress:
        scores = score(loaded, output=output, progress=progress)
    print_scores(scores, output, as_json=as_json)

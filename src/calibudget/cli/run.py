"""`calibudget run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Address, Engine, Json, Overrides, RecipePath, Workers, with_engine


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="The run directory to make; default runs/ and the recipe's name.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run of the same recipe.")] = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show counts, tokens and the time expected, by one batch on the model; begin no run."
        ),
    ] = False,
    scores: Annotated[
        Path | None, typer.Option(help="Scores made elsewhere (`calibudget score`); no model is loaded.")
    ] = None,
    warm_ups: Annotated[
        Path | None, typer.Option(help="Warm-ups made elsewhere (`calibudget warm-up`); none are trained.")
    ] = None,
    engine: Engine = None,
    workers: Workers = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Split, score, allocate, select and verify, into one run directory."""
    from calibudget.cli.hygiene_tables import print_hygiene
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_dry_run, print_run
    from calibudget.cli.train import training_bar
    from calibudget.pipeline import dry_run, run
    from calibudget.recipe import load_recipe

    loaded = load_recipe(recipe, with_engine(overrides, engine, workers, address))
    with progress_bar() as progress, training_bar() as listener:
        if preview:
            print_dry_run(dry_run(loaded, scores=scores, warm_ups=warm_ups, progress=progress), as_json=as_json)
            return
        result = run(
            loaded,
            output_dir or Path("runs") / recipe.stem,
            resume=resume,
            scores=scores,
            warm_ups=warm_ups,
            progress=progress,
            listener=listener,
        )
    if result.hygiene is not None and not as_json:
        print_hygiene(result.hygiene)
    print_run(result, as_json=as_json)

"""`calibudget select`: the draw alone, for an allocation that is already there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json, Overrides, RecipePath


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    allocation: Annotated[Path, typer.Option(help="The allocation.json whose quotas are drawn.")] = ...,  # type: ignore[assignment]
    output_dir: Annotated[Path, typer.Option(help="Folder to write the train set and its evidence to.")] = ...,  # type: ignore[assignment]
    as_json: Json = False,
) -> None:
    """Draw exactly the quotas of an allocation and write the train set."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_selection
    from calibudget.pipeline import select
    from calibudget.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    with progress_bar() as progress:
        selection = select(loaded, allocation, output_dir, progress=progress)
    print_selection(selection, output_dir, as_json=as_json)

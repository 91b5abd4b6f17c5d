"""`calibudget init`: a commented recipe for the data found in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="The folder that holds the sources' files.")],
    output: Annotated[Path, typer.Option(help="The recipe to write; - for stdout.")] = Path("recipe.yaml"),
) -> None:
    """Write a commented recipe for the data files found in a folder."""
    from calibudget.errors import InputError
    from calibudget.pipeline import draft_recipe
    from calibudget.store import write_atomic

    text = draft_recipe(data_dir, written_to=None if str(output) == "-" else output)
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    if output.exists():
        raise InputError(f"{output} exists already; name another file with --output")
    write_atomic(output, text.encode())
    typer.echo(f"{output} written; look it over, then: calibudget run {output}")

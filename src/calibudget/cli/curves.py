"""`calibudget curves`: what warm-ups showed of each source, and what they predicted beside what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json


def command(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run under learning curves.")],
    outcome: Annotated[
        Path | None, typer.Option(help="Scores of the calibration split after training, made by `calibudget score`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the learning curves of a run and the macro NLL that they predict; with --outcome beside the measured one."""
    from calibudget.cli.curve_tables import print_curves
    from calibudget.pipeline import show_curves

    print_curves(show_curves(run_dir, outcome), as_json=as_json)

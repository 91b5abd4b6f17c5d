"""The commands that show what came out: `report` and `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json


def explain(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source's label.")],
    as_json: Json = False,
) -> None:
    """Show the arithmetic of one quota, line by line, each to be checked by hand."""
    from calibudget.cli.tables import print_json, print_line
    from calibudget.pipeline.explain import digits, explain, read_evidence

    found = explain(*read_evidence(run_dir), source)
    if as_json:
        print_json(found.to_json())
        return
    print_line(found.sentence)
    width = max(len(step.name) for step in found.steps)
    for step in found.steps:
        print_line(f"{step.name:<{width}}  {digits(step.value):>10}  = {step.formula}")

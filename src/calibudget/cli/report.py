"""The commands that show what came out: `report` and `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN_DIR|STUDY_DIR", help="A run directory, or a study's directory.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="The file to write. Default: report.html in the directory.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="A run's sources: also show the texts of its calibration records.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Show a study even if cells are missing.")] = False,
) -> None:
    """Write a run or a study as one HTML file, to open offline, print or send."""
    from calibudget.cli.progress import progress_bar
    from calibudget.errors import ArtefactError
    from calibudget.pipeline.run_directory import RECIPE_NAME
    from calibudget.report.page import write_page, write_report
    from calibudget.study.freeze import FROZEN

    if not directory.is_dir():
        raise ArtefactError(f"{directory}: no such directory")
    with progress_bar() as progress:
        if (directory / RECIPE_NAME).exists():
            written = write_report(directory, output=output, data_dir=data_dir, progress=progress)
        elif (directory / FROZEN.name).exists():
            from calibudget.study.reporting.report import page_facts  # what draws its figures takes a second to import

            facts = page_facts(directory, partial=partial)
            written = write_page("study.html", facts, directory, output)
        else:
            raise ArtefactError(
                f"{directory}: is no run directory (no {RECIPE_NAME}) and no study's (no {FROZEN.name})"
            )
    typer.echo(written)


def explain(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source's label.")],
    as_json: Json = False,
) -> None:
    """Show the arithmetic of one quota, line by line."""
    from calibudget.cli.tables import print_json, print_line, warn_of_hashes
    from calibudget.pipeline.explain import digits, explain, read_evidence

    plan, statistics = read_evidence(run_dir)
    found = explain(plan, statistics, source)
    warn_of_hashes(statistics)
    if as_json:
        print_json(found.to_json())
        return
    print_line(found.sentence)
    width = max(len(step.name) for step in found.steps)
    for step in found.steps:
        print_line(f"{step.name:<{width}}  {digits(step.value):>10}  = {step.formula}")

"""`calibudget study`: freeze a protocol, run its grid, report what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibudget.cli.options import Address, Json

if TYPE_CHECKING:
    from calibudget.study.expect import Expected
    from calibudget.study.run import StudyOutcome

app = typer.Typer(no_args_is_help=True, help="Compare policies under a protocol that is frozen before it runs.")


ProtocolPath = Annotated[Path, typer.Argument(metavar="PROTOCOL", help="The protocol, a YAML file.")]
StudyDir = Annotated[Path, typer.Option(help="The study's directory.")]


@app.command()
def freeze(
    protocol: ProtocolPath,
    output_dir: StudyDir,
    amend: Annotated[
        bool, typer.Option("--amend", help="Keep a change of a frozen study; what it touches is exploratory then.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write down a protocol and the digests of recipe, data, models and code, before anything is run."""
    from calibudget.cli.progress import progress_bar
    from calibudget.study.protocol import load_protocol
    from calibudget.study.run import freeze_study

    with progress_bar() as progress:
        frozen = freeze_study(load_protocol(protocol), output_dir, amend=amend, progress=progress)
    last = frozen.last
    if as_json:
        from calibudget.cli.tables import print_json

        print_json(
            {
                "schema": "calibudget.study-freeze/1",
                "version": len(frozen.versions) - 1,
                "digests": dict(last.digests),
                "cells": len(last.cells),
                "changed": list(last.changed),
            }
        )
        return
    print(f"{'amended' if amend else 'frozen'}: {len(last.cells)} cells, version {len(frozen.versions) - 1}")
    for name, digest in last.digests.items():
        print(f"  {name} {digest}")
    for change in last.changed:
        print(f"  changed: {change}")


@app.command()
def run(
    protocol: ProtocolPath,
    output_dir: Annotated[
        Path | None, typer.Option(help="The study's directory, where the protocol is frozen.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Cells, hours and memory expected; nothing is run.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where cells are made: local, or ray for actors on a cluster.")
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="How many cells a cluster makes at a time.")] = 1,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run every cell of a frozen study that isn't finished; the same command goes on after a stop.

    Exit code 1 if cells failed, or if protocol, recipe, data or code aren't what is frozen.
    """
    from calibudget.cli.progress import progress_bar
    from calibudget.errors import CheckFailedError, InputError
    from calibudget.study.protocol import load_protocol
    from calibudget.study.run import expect_study, run_study

    read = load_protocol(protocol)
    with progress_bar() as progress:
        if dry_run:
            _print_expected(expect_study(read, output_dir, progress=progress), as_json=as_json)
            return
        if output_dir is None:
            raise InputError("name the study's directory (--output-dir), where the protocol is frozen")
        outcome = run_study(read, output_dir, engine=engine, workers=workers, address=address, progress=progress)
    _print_outcome(outcome, as_json=as_json)
    if outcome.grid.failed:
        raise CheckFailedError(
            f"{output_dir}: {len(outcome.grid.failed)} cells failed; failure.json beside each says why, and the same "
            "command tries them again"
        )


@app.command()
def report(
    study_dir: Annotated[Path, typer.Argument(metavar="STUDY_DIR", help="A study's directory.")],
    output_dir: Annotated[Path | None, typer.Option(help="Where the report goes; report/ in the study.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Report although cells are missing, and say so.")] = False,
) -> None:
    """Write all tables (Markdown, LaTeX, CSV), figures (SVG, PDF, PNG) and what they show and don't show."""
    from calibudget.study.reporting.report import write_report

    print(write_report(study_dir, output=output_dir, partial=partial))


def _print_outcome(outcome: StudyOutcome, *, as_json: bool) -> None:
    grid = outcome.grid
    if as_json:
        from calibudget.cli.tables import print_json

        print_json(
            {
                "schema": "calibudget.study-run/1",
                "finished": sorted(cell.name for cell in grid.results),
                "failed": {cell.name: why for cell, why in grid.failed.items()},
                "stopped": {cell.name: why for cell, why in grid.stopped.items()},
                "statuses": dict(outcome.statuses),
            }
        )
        return
    print(f"{len(grid.results)} cells finished, {len(grid.failed)} failed, {len(grid.stopped)} stopped")
    for word, cells in (("failed", grid.failed), ("stopped", grid.stopped)):
        for cell, why in cells.items():
            print(f"  {word}: {cell.name}: {why}")


def _print_expected(found: dict[str, Expected], *, as_json: bool) -> None:
    if as_json:
        backbones = {name: one.to_json() for name, one in found.items()}
        from calibudget.cli.tables import print_json

        print_json({"schema": "calibudget.study-dry-run/1", "backbones": backbones})
        return
    from rich.table import Table

    from calibudget.cli.tables import print_table

    table = Table("backbone", "cells", "left to make", "train tokens", "records scored", "items asked", "hours", "GiB")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in found.items():
        hours = "?" if one.hours is None else f"{one.hours:,.2f}"
        gib = "?" if one.gib is None else f"{one.gib:.0f}"
        tokens, items = ("unknown" if one is None else f"{one:,}" for one in (one.train_tokens, one.items))
        table.add_row(name, f"{one.cells:,}", f"{one.left:,}", tokens, f"{one.scored:,}", items, hours, gib)
    print_table(table)
    for name, one in found.items():
        print(f"{name}: by {one.by}")
    for why in dict.fromkeys(why for one in found.values() for why in one.unread):
        print(why)

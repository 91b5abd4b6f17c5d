"""`calibudget study`: freeze a protocol, run its grid, report what came out."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibudget.cli.options import Address, Command, Json, Overrides, RecipePath, ReportTo
from calibudget.cli.progress import Begun, progress_bar
from calibudget.errors import CheckFailedError

if TYPE_CHECKING:
    from calibudget.study.expect import Expected
    from calibudget.study.run import StudyOutcome

app = typer.Typer(
    name="study", no_args_is_help=True, help="Compare policies under a protocol that is frozen before it runs."
)


ProtocolPath = Annotated[Path, typer.Argument(metavar="PROTOCOL", help="The protocol, a YAML file.")]
StudyDir = Annotated[Path, typer.Option(help="The study's directory.")]


@app.command(cls=Begun)
def freeze(
    protocol: ProtocolPath,
    output_dir: StudyDir,
    amend: Annotated[
        bool, typer.Option("--amend", help="Accept a change of a frozen study; what it touches becomes exploratory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Record a protocol and the digests of recipe, data, models and code, before anything runs."""
    from calibudget.cli.tables import print_json
    from calibudget.study.protocol import load_protocol
    from calibudget.study.run import freeze_study

    with progress_bar() as progress:
        frozen = freeze_study(load_protocol(protocol), output_dir, amend=amend, progress=progress)
    last = frozen.last
    if as_json:
        print_json(frozen.to_json())
        return
    print(f"{'amended' if amend else 'frozen'}: {len(last.cells)} cells, version {len(frozen.versions) - 1}")
    for name, digest in last.digests.items():
        print(f"  {name} {digest}")
    for change in last.changed:
        print(f"  changed: {change}")


@app.command(cls=Begun)
def run(
    protocol: ProtocolPath,
    output_dir: Annotated[Path | None, typer.Option(help="The study's directory, with the frozen protocol.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the expected cells, hours and memory; don't run.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where to make cells: local, or ray (a cluster).")
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="How many cells the cluster makes at once.")] = 1,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run every unfinished cell of a frozen study; the same command continues after a stop.

    Exit code 1 if cells failed, or if protocol, recipe, data or code aren't what is frozen.
    """
    from calibudget.cli.tables import print_json
    from calibudget.errors import InputError
    from calibudget.study.expect import expect_study
    from calibudget.study.protocol import load_protocol
    from calibudget.study.run import run_study

    read = load_protocol(protocol)
    with progress_bar() as progress:
        if dry_run:
            _print_expected(expect_study(read, output_dir, progress=progress), as_json=as_json)
            return
        if output_dir is None:
            raise InputError("name the study's directory (--output-dir), where the protocol is frozen")
        outcome = run_study(read, output_dir, engine=engine, workers=workers, address=address, progress=progress)
    print_json(outcome.to_json()) if as_json else _print_outcome(outcome)
    _refuse_failures(outcome, output_dir)


@app.command(cls=Command)
def report(
    study_dir: Annotated[Path, typer.Argument(metavar="STUDY_DIR", help="A study's directory.")],
    output_dir: Annotated[
        Path | None, typer.Option(help="Where the report goes. Default: report/ in the study.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Write the report even if cells are missing; it says so.")
    ] = False,
    report_to: ReportTo = None,
) -> None:
    """Write a study's tables (Markdown, LaTeX, CSV) and figures (SVG, PDF, PNG), and what they show."""
    from calibudget.study.reporting.report import write_report
    from calibudget.training.trackers import check_trackers, report_once

    check_trackers(report_to or ())
    written = write_report(study_dir, output=output_dir, partial=partial)
    print(written)
    report_once(report_to or (), Path(f"{study_dir}.tensorboard"), dict(_figures(written.parent)))


def _figures(report_dir: Path) -> Iterator[tuple[str, object]]:
    """Every number of a report's tables, by table, the texts of its row, and column."""
    for path in sorted((report_dir / "tables").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=1):
                cells = {name: _number(cell or "") for name, cell in row.items()}
                texts = [cell for cell in cells.values() if isinstance(cell, str) and cell]
                yield from (
                    ("/".join([path.stem, str(number), *texts, name]), cell)
                    for name, cell in cells.items()
                    if isinstance(cell, float)
                )


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def compare(
    recipe: RecipePath,
    overrides: Overrides = None,
    policies: Annotated[
        str, typer.Option(help="The policies, comma-separated; the first is judged against the others.")
    ] = "calibudget,equal,proportional",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each policy gets.")] = 3,
    output_dir: Annotated[Path, typer.Option(help="Where cells, report and verdicts go.")] = Path("comparison"),
    training: Annotated[list[str] | None, typer.Option(help="An option of training, name=value; may repeat.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it will take; don't run.")] = False,
    as_json: Json = False,
) -> None:
    """Train a recipe under several policies and judge them by its held-out records, in one frozen study.

    It first shows what it will take. The same command continues after a stop. Exit code 1 if cells failed, or if
    recipe, data or code aren't what was frozen.
    """
    from calibudget.study.compare import comparison, expect_comparison, training_options
    from calibudget.study.freeze import FROZEN
    from calibudget.study.reporting.comparison_verdict import verdicts
    from calibudget.study.reporting.report import write_report
    from calibudget.study.reporting.results import load_results
    from calibudget.study.run import freeze_study, run_study

    names = [name.strip() for name in policies.split(",")]
    options = training_options(training or ())
    protocol = comparison(recipe, names, seeds, overrides=overrides or (), training=options)
    with progress_bar() as progress:
        expected = expect_comparison(protocol, output_dir, overrides or (), progress=progress)
    if dry_run:
        _print_expected({"recipe": expected}, as_json=as_json)
        return
    typer.echo(_cost(expected), err=True)
    with progress_bar() as progress:
        if not (output_dir / FROZEN.name).exists():
            freeze_study(protocol, output_dir, progress=progress)
        outcome = run_study(protocol, output_dir, progress=progress)
    _refuse_failures(outcome, output_dir)
    report = write_report(output_dir)
    found = verdicts(load_results(output_dir))
    if as_json:
        from calibudget.cli.tables import print_json

        body = {"policies": names, "seeds": seeds, "verdicts": [asdict(one) for one in found]}
        print_json({"schema": "calibudget.verdicts/1", **body})
        return
    for one in found:
        typer.echo(one.words)
    typer.echo(f"all tables and figures: {report}")


def _cost(expected: Expected) -> str:
    """What a comparison will take, in a line."""
    tokens = "?" if expected.train_tokens is None else f"{expected.train_tokens:,}"
    hours = "unknown" if expected.hours is None else f"about {expected.hours:.1f} hours"
    if expected.hours is not None and expected.hours < 1.5:
        hours = f"about {60 * expected.hours:.0f} minutes"
    return (
        f"{expected.left} of {expected.cells} trainings left: {tokens} tokens to train, {expected.scored:,} records to "
        f"score, {expected.items or 0:,} to evaluate; time {hours}, by {expected.by}"
    )


def _refuse_failures(outcome: StudyOutcome, output_dir: Path) -> None:
    if outcome.grid.failed:
        _, why = next(iter(outcome.grid.failed.items()))
        raise CheckFailedError(
            f"{output_dir}: {len(outcome.grid.failed)} cells failed, the first: {why}; failure.json beside each says "
            "why, and the same command tries them again"
        )


def _print_outcome(outcome: StudyOutcome) -> None:
    grid = outcome.grid
    print(f"{len(grid.results)} cells finished, {len(grid.failed)} failed, {len(grid.stopped)} stopped")
    for word, cells in (("failed", grid.failed), ("stopped", grid.stopped)):
        for cell, why in cells.items():
            print(f"  {word}: {cell.name}: {why}")


def _print_expected(found: dict[str, Expected], *, as_json: bool) -> None:
    if as_json:
        backbones = {name: asdict(one) for name, one in found.items()}
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

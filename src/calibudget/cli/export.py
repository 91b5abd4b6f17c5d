"""`calibudget export`: a finished run's train set for a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibudget.cli.options import Json
from calibudget.errors import InputError

if TYPE_CHECKING:
    from calibudget.export.check import Comparison
    from calibudget.export.handover import Exported
    from calibudget.export.trainers import Trainer

ForTrainer = Annotated[
    str,
    typer.Option(
        "--for",
        help="The trainer: trl, llamafactory, axolotl, ms-swift, unsloth, open-instruct, torchtune, megatron, "
        "huggingface or croissant.",
    ),
]


def export(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    trainer: ForTrainer,
    output_dir: Annotated[Path, typer.Option(help="A new or empty folder for the trainer's files.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Training options, e.g. rank=64 epochs=1.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Load the folder with the trainer's own code; compare every token and label."),
    ] = False,
    python: Annotated[
        str | None, typer.Option(help="With --check: the Python that has the trainer. Default: this one.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The place of the model, if not as in the recipe.")] = None,
    allow_other_model: Annotated[
        bool, typer.Option("--allow-other-model", help="Allow a model that the run wasn't calibrated on.")
    ] = False,
    push: Annotated[
        str | None, typer.Option(help="With --for huggingface: upload to this repository, owner/name.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a run's train set and its training configuration for another trainer."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_json
    from calibudget.export import handover
    from calibudget.export.check import check as compare
    from calibudget.export.check import check_installed
    from calibudget.export.trainers import TRAINERS

    handover.check_push(push, trainer)
    if check:
        check_installed(trainer, python=python)
    elif python is not None:
        raise InputError("--python belongs to --check: it names the Python that has the trainer")
    with progress_bar() as progress:
        exported = handover.export(
            run_dir,
            trainer,
            output_dir,
            options or (),
            model=model,
            allow_other_model=allow_other_model,
            progress=progress,
        )
    comparison = compare(exported, python=python) if check else None
    if push is not None:
        typer.echo(handover.push(exported.folder, push), err=True)
    if as_json:
        checked = None if comparison is None else {"equal": comparison.equal, "loaded": comparison.loaded}
        print_json({**exported.fields, "check": checked})
    else:
        _print(TRAINERS[trainer], exported, comparison)
    return 0 if comparison is None or comparison.holds else 1


def _print(target: Trainer, exported: Exported, comparison: Comparison | None) -> None:
    fields = exported.fields
    taught = f", {fields['taught_tokens']:,} of {fields['tokens']:,} tokens taught" if "tokens" in fields else ""
    typer.echo(f"for         {target.title}: {fields['rows']:,} rows{taught}")
    typer.echo(f"folder      {exported.folder}")
    if target.start is not None:
        typer.echo(f"train       cd {exported.folder} && {target.start}")
    for field, instead in exported.left_out.items():
        typer.echo(f"left out    {field}: {instead}")
    if comparison is None:
        return
    typer.echo(
        f"checked     {comparison.equal} of {comparison.rows} rows have the same ids and labels in {target.title}"
    )
    if comparison.loaded != comparison.rows:
        typer.echo(f"differs     {target.title} loads {comparison.loaded} rows")
    for difference in comparison.differences:
        typer.echo(f"differs     {difference}")

"""`calibudget train`: an adapter from a finished run."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibudget.cli.options import Json
from calibudget.cli.progress import Told, progress_bar
from calibudget.messages import counted

if TYPE_CHECKING:
    from calibudget.training.report import Listener, StepReport, TrainingResult


def train(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Training options, e.g. rank=64 epochs=1.")
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option(help="Also train on this earlier round's examples; may repeat.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Where adapter/ and training.jsonl go. Default: the run directory.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The place of the model, if not as in the recipe.")] = None,
    allow_other_model: Annotated[
        bool, typer.Option("--allow-other-model", help="Allow a model that the run wasn't calibrated on.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished training.")] = False,
    as_json: Json = False,
) -> None:
    """Train LoRA+ on a run's train set, by default with the paper's configuration.

    On several GPUs: accelerate launch -m calibudget train RUN_DIR, or torchrun -m calibudget train RUN_DIR.
    """
    from calibudget.cli.tables import print_json
    from calibudget.pipeline.train import train

    with progress_bar() as progress:
        result = train(
            run_dir,
            options or (),
            also=also or (),
            output_dir=output_dir,
            model=model,
            allow_other_model=allow_other_model,
            resume=resume,
            progress=progress,
            listener=told_of(progress),
        )
    if os.environ.get("RANK", "0") == "0":
        body = {
            "schema": "calibudget.training/1",
            "steps": result.steps,
            "final_loss": result.final_loss,
            "adapter": result.adapter.name,
        }
        print_json(body) if as_json else _print(result)


def told_of(progress: Told) -> Listener:
    """A listener that tells of each step as `progress` tells of a stage."""

    def listen(report: StepReport) -> None:
        parts = [f"epoch {report.epoch}", f"loss {report.loss:.3f}"]
        if report.tokens_per_second is not None:
            parts.append(f"{report.tokens_per_second:,.0f} tokens/s")
        if report.device_share is not None:
            parts.append(f"{report.device_share:.0%} of the device's rate")
        if report.seconds_left is not None and report.step < report.total:
            parts.append(f"{timedelta(seconds=round(report.seconds_left))} left")
        progress("training", report.step, report.total, ", ".join(parts))

    return listen


def _print(result: TrainingResult) -> None:
    speed = "" if result.tokens_per_second is None else f", {result.tokens_per_second:,.0f} tokens/s"
    typer.echo(f"{counted(result.steps, 'step')}, last loss {result.final_loss:.4f}{speed}")
    if result.frozen_experts:
        modules = counted(len(result.frozen_experts), "layer")
        typer.echo(f"frozen      the experts of {modules}: stacked matrices take no factors")
    typer.echo(f"adapter     {result.adapter}")
    typer.echo(f"log         {result.log}")

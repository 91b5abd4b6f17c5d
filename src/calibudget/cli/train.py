"""`calibudget train`: an adapter from a finished run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibudget.cli.options import Json
from calibudget.cli.progress import SECONDS_BETWEEN_LINES, Lines, progress_bar
from calibudget.messages import counted

if TYPE_CHECKING:
    from calibudget.pipeline.progress import Progress
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

    with progress_bar() as progress, training_bar(progress) as listener:
        result = train(
            run_dir,
            options or (),
            also=also or (),
            output_dir=output_dir,
            model=model,
            allow_other_model=allow_other_model,
            resume=resume,
            progress=progress,
            listener=listener,
        )
    if os.environ.get("RANK", "0") == "0":
        body = {
            "schema": "calibudget.training/1",
            "steps": result.steps,
            "final_loss": result.final_loss,
            "adapter": result.adapter.name,
        }
        print_json(body) if as_json else _print(result)


@contextmanager
def training_bar(progress: Progress) -> Iterator[Listener]:
    """A listener that draws a bar on a terminal, and elsewhere says a line now and then among those of `progress`."""
    if isinstance(progress, Lines):
        yield _Steps(progress)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task: list[TaskID] = []

        def draw(report: StepReport) -> None:
            if not task:
                task.append(bar.add_task("", total=report.total))
            bar.update(task[0], completed=report.step, description=_words(report))

        yield draw


class _Steps:
    """The last step's line, and one every ten seconds before it."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._said = lines, time.monotonic()

    def __call__(self, report: StepReport) -> None:
        now = time.monotonic()
        if report.step == report.total or now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            self._lines.say(f"training: step {report.step:,} of {report.total:,}, {_words(report)}", now)


def _words(report: StepReport) -> str:
    parts = [f"epoch {report.epoch}", f"loss {report.loss:.3f}"]
    if report.tokens_per_second is not None:
        parts.append(f"{report.tokens_per_second:,.0f} tokens/s")
    if report.device_share is not None:
        parts.append(f"{report.device_share:.0%} of the device's rate")
    if report.seconds_left is not None and report.step < report.total:
        parts.append(f"{timedelta(seconds=round(report.seconds_left))} left")
    return ", ".join(parts)


def _print(result: TrainingResult) -> None:
    speed = "" if result.tokens_per_second is None else f", {result.tokens_per_second:,.0f} tokens/s"
    typer.echo(f"{counted(result.steps, 'step')}, last loss {result.final_loss:.4f}{speed}")
    if result.frozen_experts:
        modules = counted(len(result.frozen_experts), "layer")
        typer.echo(f"frozen      the experts of {modules}: stacked matrices take no factors")
    typer.echo(f"adapter     {result.adapter}")
    typer.echo(f"log         {result.log}")

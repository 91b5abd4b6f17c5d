"""`calibudget study testbed`: many paired trainings on generated families, by a frozen protocol."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def command(
    protocol: Annotated[Path, typer.Argument(metavar="PROTOCOL", help="The protocol, a YAML file.")],
    output_dir: Annotated[Path, typer.Option(help="Where results.jsonl lies; an unfinished one is gone on with.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="The generated data; made there if it isn't. [OUTPUT_DIR/data]")
    ] = None,
    model: Annotated[str, typer.Option(help="Hub id, directory or .gguf file.")] = "embedded",
    gpus: Annotated[str, typer.Option(help="GPUs to run on, such as 0,1. [this process, on what it finds]")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Processes on each GPU.")] = 1,
    only: Annotated[str, typer.Option(help="Points to run, parted by commas. [all]")] = "",
    seconds: Annotated[float, typer.Option(min=0.0, help="Begin no cell after so many seconds; 0 for no limit.")] = 0.0,
    tables: Annotated[bool, typer.Option("--tables", help="Run nothing; print the tables of what is there.")] = False,
) -> None:
    """Run what is left of a protocol of the testbed, then print its tables as Markdown."""
    from calibudget.errors import InterruptedRunError
    from calibudget.study.testbed.generate import MANIFEST_NAME, generate
    from calibudget.study.testbed.protocol import read_protocol
    from calibudget.study.testbed.report import markdown
    from calibudget.study.testbed.results import RESULTS_NAME, Results
    from calibudget.study.testbed.running import Job, run_testbed

    frozen = read_protocol(protocol)
    left = 0
    if not tables:
        data = data_dir or output_dir / "data"
        if not (data / MANIFEST_NAME).exists():
            generate(data, frozen.halves)
        job = Job(
            protocol=protocol,
            data=data,
            model=model,
            results=output_dir,
            deadline=time.time() + seconds if seconds else None,
            only=tuple(filter(None, only.split(","))),
        )
        left = run_testbed(job, gpus=_gpus(gpus), processes=processes, note=_say)
    typer.echo(markdown(frozen, Results.read(output_dir / RESULTS_NAME, frozen.sha256)), nl=False)
    if left:
        raise InterruptedRunError(f"{left} cells are unfinished")


def _gpus(text: str) -> list[int]:
    from calibudget.errors import InputError

    parts = [part for part in text.split(",") if part]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"--gpus {text!r}: give the numbers of GPUs, parted by commas, such as 0,1")
    return [int(part) for part in parts]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""The testbed's commands: many paired trainings on generated families, by a frozen protocol.

    python -m testbed generate DATA [--protocol PROTOCOL]         where reasoning-gym is installed
    python -m testbed run PROTOCOL --data DATA --results DIR [--model MODEL] [--gpus 0,1] [--processes 3]
    python -m testbed tables PROTOCOL --results DIR [--figures DIR]
    python -m testbed merge TARGET FILE...                        of runs on several machines

A run that stops, at its deadline or otherwise, goes on from the results that it left. Printed last: what cells took by
stage, and of a short run what came out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from calibudget.errors import CalibudgetError
from testbed.answers_report import answers_figures, answers_markdown
from testbed.data import generate
from testbed.families import FIRST_HALVES
from testbed.grid import cells
from testbed.processes import Job, run_testbed
from testbed.protocol import read_protocol
from testbed.report import figures, markdown
from testbed.results import RESULTS_NAME, Results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 2 for input that can't be used."""
    asked = _parser().parse_args(arguments)
    try:
        asked.command(asked)
    except CalibudgetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _generate(asked: argparse.Namespace) -> None:
    halves = FIRST_HALVES if asked.protocol is None else read_protocol(asked.protocol).halves
    print(generate(asked.directory, halves))


def _merge(asked: argparse.Namespace) -> None:
    merged = Results.merge(asked.files, asked.target)
    print(f"{len(list(merged.lines('cell')))} cells, {len(list(merged.lines('run')))} trainings")


def _tables(asked: argparse.Namespace) -> None:
    protocol = read_protocol(asked.protocol)
    results = Results.read(asked.results / RESULTS_NAME, protocol.sha256)
    is_nll = protocol.endpoint == "nll"
    print((markdown if is_nll else answers_markdown)(protocol, results), end="")
    if asked.figures is not None:
        asked.figures.mkdir(parents=True, exist_ok=True)
        for name, data in (figures if is_nll else answers_figures)(protocol, results).items():
            (asked.figures / name).write_bytes(data)


def _run(asked: argparse.Namespace) -> None:
    began = time.time()
    protocol = read_protocol(asked.protocol)
    print(f"protocol {protocol.name} {protocol.sha256}, {len(cells(protocol))} cells", flush=True)
    job = Job(
        protocol=asked.protocol,
        data=asked.data,
        model=asked.model,
        results=asked.results,
        deadline=began + asked.seconds if asked.seconds else None,
        device=asked.device,
        execution={"device": asked.device},
        score_tokens=asked.score_tokens,
        only=tuple(filter(None, asked.only.split(","))),
    )
    gpus = [int(part) for part in asked.gpus.split(",") if part]
    left = run_testbed(job, gpus=gpus, processes=asked.processes, note=_say)
    _report(asked.results, time.time() - began)
    print(f"{left} cells are left")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _report(folder: Path, seconds: float) -> None:
    """What trainings and measurements took."""
    results = Results(folder / RESULTS_NAME)
    runs = list(results.lines("run"))
    print(f"{len(runs)} trainings and {len(list(results.lines('probe')))} probes in {seconds:.0f} s")
    for stage in ("select", "train", "evaluate"):
        values = [run["seconds"][stage] for run in runs]
        if values:
            print(f"{stage:10} median {statistics.median(values):6.2f} s, {min(values):.2f} to {max(values):.2f}")
    for cell in results.lines("cell"):
        run = results.find(cell["run"])
        if run is not None and len(runs) <= 24:
            tasks = run["tasks"]
            nll = statistics.fmean(tasks[label]["nll"] for label in cell["quotas"])
            right = statistics.fmean(tasks[label]["accuracy"] for label in cell["quotas"])
            each = " ".join(f"{label[:8]} {tasks[label]['nll']:.3f}/{tasks[label]['accuracy']:.2f}" for label in tasks)
            print(f"{cell['point']} {cell['policy']} {cell['seed']}: NLL {nll:.4f} accuracy {right:.3f} | {each}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed")
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("generate")
    making.set_defaults(command=_generate)
    making.add_argument("directory", type=Path)
    making.add_argument("--protocol", type=Path)
    merging = commands.add_parser("merge")
    merging.set_defaults(command=_merge)
    merging.add_argument("target", type=Path)
    merging.add_argument("files", type=Path, nargs="+")
    reading = commands.add_parser("tables")
    reading.set_defaults(command=_tables)
    reading.add_argument("protocol", type=Path)
    reading.add_argument("--results", type=Path, required=True)
    reading.add_argument("--figures", type=Path)
    running = commands.add_parser("run")
    running.set_defaults(command=_run)
    running.add_argument("protocol", type=Path)
    running.add_argument("--data", type=Path, required=True)
    running.add_argument("--results", type=Path, required=True)
    running.add_argument("--model", default="embedded")
    running.add_argument("--gpus", default="", help="such as 0,1; without it this process on what it finds")
    running.add_argument("--processes", type=int, default=1, help="on each GPU")
    running.add_argument("--seconds", type=float, default=0.0, help="begin no cell after so many; 0 for no limit")
    running.add_argument("--device", default="auto")
    running.add_argument("--score-tokens", type=int, default=None)
    running.add_argument("--only", default="", help="points to run, such as main,other")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The testbed on a machine with GPUs: what is left of a frozen protocol, several processes a card.

    python benchmarks/testbed_gpu.py generate DATA [--protocol PROTOCOL]         where reasoning-gym is installed
    python benchmarks/testbed_gpu.py run PROTOCOL --data DATA --model MODEL --results DIR \\
        --gpus 0,1 --processes 3 --seconds 560
    python benchmarks/testbed_gpu.py tables PROTOCOL --results DIR [--figures DIR]
    python benchmarks/testbed_gpu.py merge TARGET FILE...    of runs on several machines

A run that stops, at its deadline or otherwise, goes on from the results that it left. Printed last: what cells took by
stage, and of a short run what came out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from calibudget.study.testbed.families import FIRST_HALVES
from calibudget.study.testbed.generate import generate
from calibudget.study.testbed.grid import cells
from calibudget.study.testbed.protocol import read_protocol
from calibudget.study.testbed.report import figures, markdown
from calibudget.study.testbed.results import RESULTS_NAME, Results
from calibudget.study.testbed.running import Job, run_testbed


def main() -> None:
    began = time.time()
    arguments = parse()
    if arguments.command == "generate":
        halves = FIRST_HALVES if arguments.protocol is None else read_protocol(arguments.protocol).halves
        print(generate(arguments.directory, halves))
        return
    if arguments.command == "merge":
        merged = Results.merge(arguments.files, arguments.target)
        print(f"{len(list(merged.lines('cell')))} cells, {len(list(merged.lines('run')))} trainings")
        return
    protocol = read_protocol(arguments.protocol)
    if arguments.command == "tables":
        results = Results.read(arguments.results / RESULTS_NAME, protocol.sha256)
        print(markdown(protocol, results), end="")
        if arguments.figures is not None:
            arguments.figures.mkdir(parents=True, exist_ok=True)
            for name, data in figures(protocol, results).items():
                (arguments.figures / name).write_bytes(data)
        return
    print(f"protocol {protocol.name} {protocol.sha256}, {len(cells(protocol))} cells", flush=True)
    job = Job(
        protocol=arguments.protocol,
        data=arguments.data,
        model=arguments.model,
        results=arguments.results,
        deadline=began + arguments.seconds if arguments.seconds else None,
        device=arguments.device,
        execution={"device": arguments.device},
        score_tokens=arguments.score_tokens,
        only=tuple(arguments.only.split(",")) if arguments.only else (),
    )
    gpus = [int(part) for part in arguments.gpus.split(",")] if arguments.gpus else []
    left = run_testbed(
        job, gpus=gpus, processes=arguments.processes, note=lambda text: print(text, file=sys.stderr, flush=True)
    )
    report(arguments.results, time.time() - began)
    print(f"{left} cells are left")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("generate")
    making.add_argument("directory", type=Path)
    making.add_argument("--protocol", type=Path)
    merging = commands.add_parser("merge")
    merging.add_argument("target", type=Path)
    merging.add_argument("files", type=Path, nargs="+")
    reading = commands.add_parser("tables")
    reading.add_argument("protocol", type=Path)
    reading.add_argument("--results", type=Path, required=True)
    reading.add_argument("--figures", type=Path)
    running = commands.add_parser("run")
    running.add_argument("protocol", type=Path)
    running.add_argument("--data", type=Path, required=True)
    running.add_argument("--model", required=True)
    running.add_argument("--results", type=Path, required=True)
    running.add_argument("--gpus", default="")
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--seconds", type=float, default=0.0)
    running.add_argument("--device", default="auto")
    running.add_argument("--score-tokens", type=int, default=None)
    running.add_argument("--only", default="")
    return parser.parse_args()


def report(folder: Path, seconds: float) -> None:
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


if __name__ == "__main__":
    main()

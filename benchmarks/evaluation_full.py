"""A full evaluation of one model on all sixteen tasks, with the wall time of each.

    python benchmarks/evaluation_full.py MODEL --data-dir DATA --output OUT [--device cuda] [--batch-tokens 262144]

Interrupted, it goes on where it stopped when given again; a task's seconds are then those of the last call. Where
bubblewrap is missing, code is generated now and judged later, by `calibudget evaluate OUT --rejudge --data-dir DATA` on
a machine that has it. Prints a Markdown table; seconds are of generating, the whole time in the first line of all.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from calibudget.errors import DependencyError
from calibudget.evaluation.benchmarks import expand_tasks, has_choices
from calibudget.evaluation.sandbox import open_sandbox
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.evaluated_models import Generation


class Clock:
    """A progress listener that remembers when each stage began and ended."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.perf_counter()
        self.spans[stage] = (self.spans.get(stage, (now, now))[0], now)
        print(f"{stage}: {done:,} of {total or 0:,}", file=sys.stderr, flush=True)


def has_sandbox() -> bool:
    try:
        open_sandbox()
    except DependencyError as error:
        print(f"code is judged later: {error}", file=sys.stderr)
        return False
    return True


def machine() -> str:
    import torch

    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()} CPU"
    return f"{where}, torch {torch.__version__}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=["all"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--template", default=None, choices=["alpaca", "chat"])
    parser.add_argument("--batch-tokens", type=int)
    given = parser.parse_args()
    clock = Clock()
    started = time.perf_counter()
    found = evaluate(
        given.model,
        EvaluationRequest(
            tasks=tuple(given.tasks),
            data_dir=given.data_dir,
            limit=given.limit,
            likelihood=any(map(has_choices, expand_tasks(given.tasks))),
            defer_code=not has_sandbox(),
        ),
        output_dir=given.output,
        engine=Generation(
            template=given.template, device=given.device, dtype=given.dtype, batch_tokens=given.batch_tokens
        ),
        resume=True,
        progress=clock,
    )[""]
    print(f"{found.model['name']} ({found.model['dtype']}) on {machine()}: {time.perf_counter() - started:,.0f} s\n")
    print("| task | items | score % | ± se | unparsable | NLL | s |\n|---|---:|---:|---:|---:|---:|---:|")
    for name, one in found.tasks.items():
        score = (
            f"{100 * one.score:.2f} | {100 * (one.standard_error or 0.0):.2f}" if one.score is not None else "later |"
        )
        begun, ended = clock.spans.get(name, (0.0, 0.0))
        nll = "" if one.mean_nll is None else f"{one.mean_nll:.3f}"
        items, lost = sum(one.verdicts.values()), one.verdicts.get("unparsable", 0)
        print(f"| {name} | {items:,} | {score} | {lost:,} | {nll} | {ended - begun:,.1f} |")
    for name, panel in found.panels.items():
        if panel.score is not None and panel.standard_error is not None:
            print(f"| **{name}** | | {100 * panel.score:.2f} | {100 * panel.standard_error:.2f} | | | |")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted; given again, it goes on from here", file=sys.stderr)
        sys.exit(3)

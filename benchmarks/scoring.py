"""Scoring on the CPU in float32: mean response NLL (and greedy answers) of real calibration records, beside peers.

    python benchmarks/scoring.py [--records 8] [--runs 5] [--answers]

Needs CALIBUDGET_DATA and the embedded model; the peer lm-eval (0.4.13) is left out where it isn't installed. Every
side is a process of its own that loads the same model and gets the same ids; they are asked in turn, in alternating
order, and report CPU seconds of all their threads, wall time and peak memory. The limit is the time that the
multiply-adds of all tokens take at the matrix rate measured in the same run, the head counted at response positions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from measuring import OUTPUT, SOURCES, calibration_items, installed, processor

LIKELIHOOD = ("ours", "lm-eval 16", "lm-eval 4", "lm-eval 1")
ANSWERS = ("ours, with answers", "padded 16, with answers")
NEW_TOKENS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=8, help="records a source")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--answers", action="store_true", help="measure greedy answers too (minutes)")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(arguments.child, arguments.records)
        return
    load = os.getloadavg()[0]
    table = compare(LIKELIHOOD, arguments.records, arguments.runs, "ours")
    if arguments.answers:
        table += "\n" + compare(ANSWERS, arguments.records, arguments.runs, "ours, with answers")
    print(table)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "scoring.md").write_text(f"{heading(load)}\n{table}")


def heading(load: float) -> str:
    """What was run, when, where and with what."""
    import torch

    libraries = installed("torch", "transformers", "lm_eval")
    return (
        f"# Scoring on the CPU\n\n    python {' '.join(['benchmarks/scoring.py', *sys.argv[1:]])}\n\n"
        f"{time.strftime('%Y-%m-%d')}, {processor()}, {os.cpu_count()} cores (load {load:.1f} before), "
        f"{torch.get_num_threads()} threads; Python {platform.python_version()}, {libraries}.\n"
    )


def compare(names: tuple[str, ...], records: int, runs: int, own: str) -> str:
    names = tuple(name for name in names if not name.startswith("lm-eval") or find_spec("lm_eval"))
    children = {name: Child(name, records) for name in names}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(runs):
        for name in names if number % 2 == 0 else names[::-1]:
            found[name].append(children[name].ask())
            print(number, name, {k: found[name][-1][k] for k in ("cpu", "wall")}, file=sys.stderr, flush=True)
    for child in children.values():
        child.end()
    medians = {n: {k: median(r[k] for r in rows) for k in ("cpu", "wall")} for n, rows in found.items()}
    ours, first = medians[own], found[own][0]
    lines = [
        f"{records * len(SOURCES)} records, {first['tokens']:,} tokens, SmolLM2-135M-Instruct in float32, "
        f"{runs} runs, medians; "
        f"limit {first['limit']:.2f} CPU seconds at {first['rate'] / 1e9:.0f} GFLOP/s a thread.",
        "",
        "| side | CPU s | wall s | CPU s / ours | CPU s / limit | peak MB | NLL differs by at most |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        differs = max(abs(a - b) for a, b in zip(found[name][0]["nll"], first["nll"], strict=True))
        lines.append(
            f"| {name} | {medians[name]['cpu']:.2f} | {medians[name]['wall']:.2f} | "
            f"{medians[name]['cpu'] / ours['cpu']:.2f} | {medians[name]['cpu'] / first['limit']:.2f} | "
            f"{max(row['peak'] for row in found[name]):,.0f} | {differs:.1e} |"
        )
    return "\n".join(lines) + "\n"


class Child:
    """One side, loaded and waiting to be asked."""

    def __init__(self, name: str, records: int) -> None:
        command = [sys.executable, "-W", "ignore", __file__, "--child", name, "--records", str(records)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self) -> dict[str, Any]:
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self._process.communicate()


def serve(name: str, records: int) -> None:
    from gpu import reading_operations

    from calibudget.lm.loading import load_model

    language_model = load_model("embedded", device="cpu")
    items = calibration_items(records)[records]
    examples = language_model.encoder("alpaca").encode_all([item.record for item in items])
    work = side(name, language_model, items, examples)
    work(4)
    rate = matrix_rate()
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        nll = work(len(items))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        found = {"cpu": cpu, "wall": wall, "peak": peak, "nll": nll, "rate": rate}
        found |= {"tokens": sum(one.total_length for one in examples)}
        print(json.dumps(found | {"limit": reading_operations(language_model.model, examples) / rate}), flush=True)


def side(name: str, language_model: Any, items: list[Any], examples: list[Any]) -> Callable[[int], list[float]]:
    """What scores the first so many items and returns their NLLs."""
    if name.startswith("ours"):
        return ours(language_model, items, answers="answers" in name)
    size = int(name.split(",")[0].split()[-1])
    if name.startswith("padded"):
        return lambda count: padded(language_model, examples[:count], size)
    return lm_eval(language_model, examples, size)


def ours(language_model: Any, items: list[Any], *, answers: bool) -> Callable[[int], list[float]]:
    from dataclasses import replace

    from calibudget.scoring.batches import measure_all
    from calibudget.scoring.local import LocalScorer
    from calibudget.scoring.scorer import ScorerSettings
    from calibudget.tasks.answers import AnswerSpec

    scorer = LocalScorer(language_model, ScorerSettings(max_new_tokens=NEW_TOKENS))
    asked = items if answers else [replace(item, answer=AnswerSpec(kind="none")) for item in items]
    return lambda count: [one.nll for one in measure_all(scorer, asked[:count])]


def lm_eval(language_model: Any, examples: list[Any], size: int) -> Callable[[int], list[float]]:
    """lm-eval's own model class, given the ids so that both sides read the same."""
    import logging

    logging.disable(logging.WARNING)
    from lm_eval.models.huggingface import HFLM

    peer = HFLM(pretrained=language_model.model, tokenizer=language_model.tokenizer, batch_size=size, device="cpu")
    requests = [(("", ""), list(one.prompt_ids), list(one.response_ids)) for one in examples]

    def work(count: int) -> list[float]:
        found = peer._loglikelihood_tokens(requests[:count], disable_tqdm=True)
        return [-one[0] / len(example.response_ids) for one, example in zip(found, examples, strict=False)]

    return work


def padded(language_model: Any, examples: list[Any], size: int) -> list[float]:
    """Two padded passes in transformers as people write them: likelihood, then `generate`."""
    from scoring_gpu import padded_nlls, padded_texts

    nlls = padded_nlls(language_model.model, examples, size)
    padded_texts(language_model.model, examples, size, ends=True)
    return nlls


def matrix_rate() -> float:
    """Operations per CPU second of one thread on large square products: the best of five."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = float("inf")
    for _ in range(6):
        start = time.process_time()
        for _ in range(4):
            left @ right
        best = min(best, time.process_time() - start)
    torch.set_num_threads(threads)
    return 4 * 2 * 1024**3 / best


if __name__ == "__main__":
    main()

"""Some of the paper's benchmarks with SmolLM2 on a CPU, beside lm-eval on the same items, prompts and limits.

    CALIBUDGET_DATA=… python benchmarks/evaluation_cpu.py [--threads 1 2] [--tasks boolq …] [--items 40] [--rounds 5]

Each round takes other items, ours and lm-eval's `HFLM.generate_until` in turn, every other round in the other order.
lm-eval has the batch size that took least on the items of a round before the first. Ours gives the references'
likelihoods too. CPU seconds of all threads count, encoding included, loading and judging not; one parser judges both.
Needs lm-eval.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from evaluation_gpu import right, theirs
from measuring import installed, processor

from calibudget.evaluation.benchmarks import load_benchmark
from calibudget.lm.loading import load_model
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of all threads that work takes, and its result."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def compare(name: str, given: argparse.Namespace, scorer: LocalScorer, harnesses: dict[int, Any], end: str) -> None:
    """One row of the table."""
    items = list(load_benchmark(name, given.data_dir).items)
    chosen = random.Random(name).sample(items, given.items * (given.rounds + 1))
    parts = [chosen[i : i + given.items] for i in range(0, len(chosen), given.items)]
    measure_all(scorer, parts[0])
    trials = {size: cpu_seconds(lambda h=h: theirs(h, scorer, parts[0], end))[0] for size, h in harnesses.items()}
    size = min(trials, key=trials.__getitem__)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    verdicts: dict[str, list[bool]] = {"ours": [], "theirs": []}
    for number, part in enumerate(parts[1:]):
        runs = {
            "ours": lambda part=part: [one.text or "" for one in measure_all(scorer, part)],
            "theirs": lambda part=part: theirs(harnesses[size], scorer, part, end),
        }
        for side in list(runs)[:: -1 if number % 2 else 1]:
            took, texts = cpu_seconds(runs[side])
            seconds[side].append(took)
            verdicts[side] += right(part, texts)
            print(f"{name}, round {number + 1}, {side}: {took:.1f} CPU s", file=sys.stderr, flush=True)
    ratios = [their / own for own, their in zip(seconds["ours"], seconds["theirs"], strict=True)]
    same = sum(a == b for a, b in zip(verdicts["ours"], verdicts["theirs"], strict=True))
    spent = " | ".join(f"{statistics.median(seconds[side]) / given.items:.3f}" for side in seconds)
    print(
        f"| {name} | {torch.get_num_threads()} | {len(verdicts['ours'])} | {spent} | {size} "
        f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
        f"| {sum(verdicts['ours'])} / {sum(verdicts['theirs'])} | {same} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("CALIBUDGET_DATA"))
    parser.add_argument("--tasks", nargs="+", default=["boolq", "hellaswag", "arc_easy", "gsm8k"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--items", type=int, default=40, help="items a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16], help="lm-eval's batch sizes to try")
    given = parser.parse_args()
    from lm_eval.models.huggingface import HFLM

    own, other = (load_model(given.model, device="cpu", dtype="float32") for _ in range(2))
    scorer = LocalScorer(own)
    # lm-eval drops special tokens from its texts, so a text goes on behind its end unless `generate` itself ends it
    other.model.generation_config.eos_token_id = scorer._encoder.end_id
    end = own.tokenizer.decode([scorer._encoder.end_id])
    harnesses = {
        size: HFLM(pretrained=other.model, tokenizer=other.tokenizer, batch_size=size, max_length=4096)
        for size in given.batch
    }
    print(f"{processor()}, {os.cpu_count()} cores, {installed('torch', 'transformers', 'lm-eval')}, float32\n")
    print("| task | threads | items | ours, CPU s an item | lm-eval | its batch | times | right: both | same verdict |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name, threads in itertools.product(given.tasks, given.threads):
        torch.set_num_threads(threads)
        compare(name, given, scorer, harnesses, end)


if __name__ == "__main__":
    main()

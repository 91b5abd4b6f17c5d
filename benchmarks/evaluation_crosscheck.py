"""Multiple choice by likelihood beside lm-eval's, on the same model, items and strings.

    CALIBUDGET_DATA=… python benchmarks/evaluation_crosscheck.py [--model embedded] [--limit 25] [--tasks boolq …]

Both sides see the same prompt and the same statements, end token included, in float32 on CPU. Needs lm-eval.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from calibudget.evaluation.aggregates import COMMON_TASKS
from calibudget.evaluation.benchmarks import Benchmark, load_benchmark
from calibudget.evaluation.generation import choice_items, choices_of, likeliest
from calibudget.lm.loading import load_model
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, Measurement


def theirs(model: Any, items: list[CalibrationItem]) -> list[Measurement]:
    """The same items through lm-eval: sums of log-probabilities of the statement after the prompt."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    encoder = model.encoder("alpaca")
    harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=8, max_length=2048)
    end = model.tokenizer.decode([encoder.end_id])
    prompts = [encoder.decode(ids) for ids in encoder.prompt_ids([item.record for item in items])]
    requests = [
        Instance("loglikelihood", {}, (prompt, item.record.completion + end), 0)
        for prompt, item in zip(prompts, items, strict=True)
    ]
    sums = [total for total, _ in harness.loglikelihood(requests, disable_tqdm=True)]
    return [
        Measurement(
            source=item.record.source, record_id=item.record.record_id, response_tokens=1, nll=-total, text=None
        )
        for item, total in zip(items, sums, strict=True)
    ]


def leading(benchmark: Benchmark, measured: list[Measurement]) -> list[float]:
    """Each statement's sum less that of its item's first one: lm-eval counts the prompt's last line end as well."""
    totals = iter(one.nll * one.response_tokens for one in measured)
    rows = [[next(totals) for _ in choices_of(item)] for item in benchmark.items]
    return [total - row[0] for row in rows for total in row]


def compare(benchmark: Benchmark, model: Any) -> None:
    items = choice_items(benchmark)
    begun = time.perf_counter()
    ours = measure_all(LocalScorer(model), items)
    half = time.perf_counter()
    other = theirs(model, items)
    ended = time.perf_counter()
    leads = [leading(benchmark, measured) for measured in (ours, other)]
    apart = max(abs(a - b) for a, b in zip(*leads, strict=True))
    picks = [[one.prediction for one in likeliest(benchmark, measured)] for measured in (ours, other)]
    unlike = [(item, a, b) for item, a, b in zip(benchmark.items, *picks, strict=True) if a != b]
    same = len(benchmark.items) - len(unlike)
    right = [sum(one.verdict == "right" for one in likeliest(benchmark, measured)) for measured in (ours, other)]
    print(
        f"| {benchmark.name} | {len(benchmark.items)} | {len(items)} | {apart:.1e} | {same} | {right[0]} / {right[1]} "
        f"| {half - begun:.1f} / {ended - half:.1f} |",
        flush=True,
    )
    for item, own, other_pick in unlike:
        print(f"    {item.name}: ours {own}, lm-eval {other_pick}, gold {item.record.answer}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--limit", type=int, default=25)
    parser.add_argument("--tasks", nargs="+", default=COMMON_TASKS)
    given = parser.parse_args()
    model = load_model(given.model, device="cpu", dtype="float32")
    print(
        "| task | items | statements | largest apart, nats | same choice | right: ours / lm-eval | s: ours / lm-eval |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in given.tasks:
        compare(load_benchmark(name, Path(os.environ["CALIBUDGET_DATA"])).limited(given.limit), model)


if __name__ == "__main__":
    main()

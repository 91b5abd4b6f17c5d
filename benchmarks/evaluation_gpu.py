"""The paper's ten benchmarks with one model on a GPU, beside lm-eval on the same card, items, prompts and limits.

    python benchmarks/evaluation_gpu.py MODEL --data-dir DATA [--theirs 1024] [--batch 64 256] [--output DIR]

Ours takes every item of each task, and its time holds the references' likelihoods too. lm-eval's `HFLM.generate_until`
takes a random share of at most `--theirs` items a task, at each batch size, and its fastest counts; its time for the
whole task is in proportion. Both generate greedily up to the same number of tokens and the same end token, and one
parser judges both. Encoding counts on both sides, loading and judging on neither. Needs lm-eval.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import gpu
import torch
from measuring import OUTPUT, installed

from calibudget.evaluation.aggregates import COMMON_TASKS, MATH_TASKS
from calibudget.evaluation.benchmarks import load_benchmark
from calibudget.lm.loading import load_model
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings
from calibudget.tasks.answers import answers_equal, parse_answer


def right(items: list[CalibrationItem], texts: list[str]) -> list[bool]:
    return [
        answers_equal(item.answer, item.record.answer or "", parse_answer(item.answer, text))
        for item, text in zip(items, texts, strict=True)
    ]


def theirs(harness: Any, scorer: LocalScorer, items: list[CalibrationItem], end: str) -> list[str]:
    """lm-eval's texts, from the same prompts and with the same limits."""
    from lm_eval.api.instance import Instance

    encoder = scorer._encoder
    prompts = [encoder.decode(ids) for ids in encoder.prompt_ids([item.record for item in items])]
    limits = [work.limit for work in scorer._encode(items)]
    requests = [
        Instance("generate_until", {}, (prompt, {"until": [end], "max_gen_toks": limit, "do_sample": False}), 0)
        for prompt, limit in zip(prompts, limits, strict=True)
    ]
    found: list[str] = harness.generate_until(requests, disable_tqdm=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=[*COMMON_TASKS, *MATH_TASKS])
    parser.add_argument("--theirs", type=int, default=1024, help="most items a task that lm-eval is timed on")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256], help="lm-eval's batch sizes")
    parser.add_argument("--ours", type=int, help="most items a task of ours; all without it")
    parser.add_argument("--batch-tokens", type=int, default=262_144)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    from lm_eval.models.huggingface import HFLM

    loaded = load_model(given.model, device=given.device, dtype=given.dtype)
    batch_tokens = given.batch_tokens if given.device == "cuda" else None
    scorer = LocalScorer(loaded, ScorerSettings(batch_tokens=batch_tokens))
    end = loaded.tokenizer.decode([scorer._encoder.end_id])
    # lm-eval drops special tokens from its texts, so a text goes on behind its end unless `generate` itself ends it
    loaded.model.generation_config.eos_token_id = scorer._encoder.end_id
    packages = installed("torch", "transformers", "lm-eval")
    print(f"{gpu.machine(given.device)}, {packages}, {given.dtype}\n", flush=True)
    print(
        "| task | items | ours, s | right % | lm-eval, s in all | its batch | of | times | both: right, ours / theirs |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    rows: list[dict[str, Any]] = []
    for name in given.tasks:
        items = list(load_benchmark(name, given.data_dir).items)[: given.ours]
        if not rows:  # kernels are loaded and chosen
            measure_all(scorer, items[:64])
        gpu.free()
        seconds, measured = gpu.timed(lambda items=items: measure_all(scorer, items))
        own = right(items, [one.text or "" for one in measured])
        chosen = sorted(random.Random(name).sample(range(len(items)), min(given.theirs, len(items))))
        some = [items[i] for i in chosen]
        row = {"task": name, "items": len(items), "seconds": seconds, "gib": gpu.peak_gib()}
        row |= {"right": sum(own), "share": len(some), "theirs": []}
        for size in given.batch:
            harness = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=size, max_length=4096)
            try:
                took, texts = gpu.timed(lambda h=harness, some=some: theirs(h, scorer, some, end))
            except torch.OutOfMemoryError:
                gpu.free()
                continue
            verdicts = right(some, texts)
            both = [own[i] for i in chosen]
            row["theirs"].append(
                {"batch": size, "seconds": took, "whole": took * len(items) / len(some), "right": sum(verdicts)}
                | {"ours_right": sum(both), "same": sum(a == b for a, b in zip(both, verdicts, strict=True))}
            )
        rows.append(row)
        best = min(row["theirs"], key=lambda one: one["seconds"])
        print(
            f"| {name} | {len(items):,} | {seconds:.2f} | {100 * sum(own) / len(own):.2f} | {best['whole']:.1f} "
            f"| {best['batch']} | {len(some)} | {best['whole'] / seconds:.1f} "
            f"| {best['ours_right']} / {best['right']}, {best['same']} alike |",
            flush=True,
        )
        given.output.mkdir(parents=True, exist_ok=True)
        body = {"machine": gpu.machine(given.device), "packages": packages, "dtype": given.dtype, "rows": rows}
        (given.output / "evaluation_gpu.json").write_text(json.dumps(body, indent=1))
    ours, other = (
        sum(row["seconds"] for row in rows),
        sum(min(t["whole"] for t in row["theirs"]) for row in rows),
    )
    print(
        f"| **all** | {sum(row['items'] for row in rows):,} | {ours:.1f} | | {other:.0f} | | | {other / ours:.1f} | |"
    )


if __name__ == "__main__":
    main()

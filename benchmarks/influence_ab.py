"""Influence against the uniform draw inside the same quotas: held-out NLL after training on what each picks.

    python benchmarks/influence_ab.py --make-data build/influence-ab.jsonl       (here; needs reasoning-gym, no GPU)
    python benchmarks/influence_ab.py --data build/influence-ab.jsonl --model DIR_OR_GGUF [--seeds 2] [--output DIR]

Families of reasoning-gym are the sources; every arm takes the same number of each. In the condition `planted` 40% of
each source's candidates got another record's answer, in `clean` none did. Arms: `uniform`; `influence`, the best of
each source by the scores that `calibudget influence` makes; `mix`, half of each quota by either; `honest`, uniform
among the candidates whose answers are their own, which no selector knows. Influence is measured once a condition;
seeds change the uniform draw, the start of the factors and the order of training. The endpoint is the mean over
sources of the mean NLL over held-out records; planted answers stand neither there nor among the calibration records.
Prints one Markdown table and writes it with all numbers to the output directory ($OUT, or benchmarks/results).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu import Report, columns, free
from measuring import OUTPUT, read_rows, write_rows
from torch.nn import functional as F  # noqa: N812

from calibudget.influence.config import WARM_UP, InfluenceConfig
from calibudget.influence.scorer import InfluenceScorer
from calibudget.keys import order_keys
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_model
from calibudget.selection.draw import draw_queues
from calibudget.selection.selectors import UNIFORM, Mix, Scored
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples, padded_batch
from calibudget.training.devices import Devices
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train

FAMILIES = ("chain_sum", "letter_counting", "spell_backward", "word_sequence_reversal", "syllogism", "word_sorting")
SIZES = {"pool": 600, "calibration": 100, "held-out": 100}
PLANTED = 0.4

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--make-data", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--conditions", default="planted,clean")
    parser.add_argument("--arms", default="uniform,influence,mix,honest")
    parser.add_argument("--quota", type=int, default=100, help="examples of each source")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--limit", type=int, help="only so many candidates a source, and half as many held out")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    if arguments.make_data is not None:
        make_data(arguments.make_data)
        return
    on_cpu = arguments.device == "cpu" or not torch.cuda.is_available()
    report = Report("influence_ab", arguments.output, table, device="cpu" if on_cpu else "cuda")
    for condition in arguments.conditions.split(","):
        compare(condition, read_data(arguments), arguments, report)
    print(report.table())


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One line a condition and arm: the seeds' values, their mean, and the mean difference to uniform."""
    cells = []
    for condition, arm in dict.fromkeys((row["part"], row["what"]) for row in rows):
        own = [row for row in rows if (row["part"], row["what"]) == (condition, arm)]
        base = {r["seed"]: r["nll"] for r in rows if (r["part"], r["what"]) == (condition, "uniform")}
        gaps = [row["nll"] - base[row["seed"]] for row in own if row["seed"] in base]
        mean, planted = (statistics.fmean(row[name] for row in own) for name in ("nll", "planted"))
        words = {"condition": condition, "arm": arm}
        words["held-out NLL by seed"] = ", ".join(f"{row['nll']:.4f}" for row in own)
        words |= {"mean": f"{mean:.4f}", "less uniform": f"{statistics.fmean(gaps):+.4f}" if gaps else ""}
        cells.append(words | {"planted among the picks": f"{planted:.1%}"})
    return columns(cells)


def compare(condition: str, rows: Sequence[Row], arguments: argparse.Namespace, report: Report) -> None:
    """All arms of one condition."""
    pool = [row for row in rows if row["split"] == "pool"]
    if condition == "planted":
        pool = plant(pool)
    seconds, scores = time.perf_counter(), influence(pool, rows, arguments)
    seconds = time.perf_counter() - seconds
    report.note(condition, f"influence of {len(pool):,} candidates in {seconds:.1f} s, model and warm-up included")
    planted = {row["record_id"] for row in pool if row["planted"]}
    if planted:
        report.note(condition, f"{separation(scores, planted):.3f} is how often a planted candidate scores lower")
    best = Scored(name="influence", scores=scores)
    honest = {s: {one: 0.0 for one in own if one not in planted} for s, own in scores.items()}
    selectors: Mapping[str, Any] = {
        "uniform": UNIFORM,
        "influence": best,
        "mix": Mix(parts={"influence": best, "uniform": UNIFORM}, weights={"influence": 0.5, "uniform": 0.5}),
        "honest": Scored(name="honest", scores=honest),
    }
    arms = [arm for arm in arguments.arms.split(",") if planted or arm != "honest"]
    quotas = dict.fromkeys(scores, min(arguments.quota, min(len(own) for own in honest.values())))
    for seed in range(1, arguments.seeds + 1):
        for arm in arms:
            begun = time.perf_counter()
            queues = {source: sorted(own, key=order_keys("selection", seed, source)) for source, own in scores.items()}
            picks = draw_queues(queues, quotas, selection_seed=seed, selector=selectors[arm]).picks
            chosen = {one for own in picks.values() for one in own}
            nll = after_training([row for row in pool if row["record_id"] in chosen], rows, seed, arguments)
            report.row(
                condition,
                arm,
                seed=seed,
                nll=statistics.fmean(nll.values()),
                sources=nll,
                planted=len(chosen & planted) / len(chosen),
                seconds=time.perf_counter() - begun,
            )


def influence(pool: Sequence[Row], rows: Sequence[Row], arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Scores of the candidates: the largest of their similarities to the sources' calibration records."""
    settings = WARM_UP | {"learning_rate": 2e-4, "max_length": 512, "too_long": "cut"}
    settings |= {"batch_size": arguments.batch_size}
    config = InfluenceConfig(warm_up=TrainingConfig(**settings), warm_up_share=0.1)
    execution = Execution(device=arguments.device)
    devices = Devices(arguments.device)

    def load() -> Any:
        return load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)

    scorer = InfluenceScorer(load, "alpaca", config, execution, devices)
    sources = sorted({row["source"] for row in pool})
    warming = []
    for source in sources:
        key = order_keys("warm-up", 0, source)
        own = sorted((row for row in pool if row["source"] == source), key=lambda row, key=key: key(row["record_id"]))
        warming += own[: max(1, len(own) // 10)]
    with tempfile.TemporaryDirectory() as directory:
        scorer.warm_up(warming, Path(directory) / "warm-up", {})
        calibration = [row for row in rows if row["split"] == "calibration"]
        scorer.calibrate({source: [row for row in calibration if row["source"] == source] for source in sources})
        scores: dict[str, dict[str, float]] = {source: {} for source in sources}
        for start in range(0, len(pool), 256):
            chunk = pool[start : start + 256]
            for row, means in zip(chunk, scorer(chunk), strict=True):
                scores[row["source"]][row["record_id"]] = max(means)
    del scorer
    free()
    return scores


def after_training(
    chosen: Sequence[Row], rows: Sequence[Row], seed: int, arguments: argparse.Namespace
) -> dict[str, float]:
    """Mean held-out NLL of each source after LoRA+ on the chosen records."""
    config = TrainingConfig(
        rank=32,
        scaling=32.0,
        learning_rate=2e-4,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        max_length=512,
        seed=seed,
    )
    language_model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
    encoder = Encoder("alpaca", language_model.tokenizer)
    with tempfile.TemporaryDirectory() as directory:
        job = TrainingJob(
            language_model=language_model,
            examples=encode_examples(chosen, encoder, max_length=512, too_long="cut"),
            config=config,
            execution=Execution(device=arguments.device, compile=False, graphs=False),
            output_dir=Path(directory) / "out",
            evidence={},
        )
        train(job, devices=Devices(arguments.device))
    held_out = [row for row in rows if row["split"] == "held-out"]
    examples = encode_examples(held_out, encoder, max_length=512, too_long="cut")
    language_model.model.set_attn_implementation("sdpa")
    values: dict[str, list[float]] = {}
    ordered = sorted(examples, key=lambda example: example.length)
    for start in range(0, len(ordered), 16):
        batch = ordered[start : start + 16]
        for example, nll in zip(batch, nlls(language_model.model, batch), strict=True):
            values.setdefault(example.source, []).append(nll)
    del language_model, job
    free()
    return {source: statistics.fmean(own) for source, own in sorted(values.items())}


@torch.no_grad()
def nlls(model: Any, examples: Sequence[TrainingExample]) -> list[float]:
    """Mean NLL over each example's response tokens, by plain padded logits."""
    batch = padded_batch(examples).to(model.device)
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).logits
    losses = F.cross_entropy(logits.flatten(0, 1)[batch.label_rows].float(), batch.labels, reduction="none")
    parts = torch.split(losses, [example.response_length for example in examples])
    return [float(part.mean()) for part in parts]


def plant(pool: Sequence[Row]) -> list[Row]:
    """The pool with the answers of 40% of each source's candidates passed around among them."""
    planted = {row["record_id"]: row for row in pool}
    for source in sorted({row["source"] for row in pool}):
        key = order_keys("planted", 0, source)
        own = sorted((row for row in pool if row["source"] == source), key=lambda row, key=key: key(row["record_id"]))
        hit = own[: int(PLANTED * len(own))]
        for row, other in zip(hit, [*hit[1:], hit[0]], strict=True):
            changed = row["completion"] != other["completion"]
            planted[row["record_id"]] = row | {"completion": other["completion"], "planted": changed}
    return list(planted.values())


def separation(scores: Mapping[str, Mapping[str, float]], planted: set[str]) -> float:
    """The mean over sources of how often a planted candidate has a lower score than another; ties count half."""
    shares = []
    for own in scores.values():
        bad = [value for one, value in own.items() if one in planted]
        good = [value for one, value in own.items() if one not in planted]
        shares.append(sum((b < g) + 0.5 * (b == g) for b in bad for g in good) / (len(bad) * len(good)))
    return statistics.fmean(shares)


def make_data(path: Path) -> None:
    """Rows of real text; families and splits start millions of seeds apart, and no prompt stands twice."""
    from reasoning_gym import create_dataset

    rows, seen = [], set()
    for number, family in enumerate(FAMILIES):
        for place, (split, size) in enumerate(SIZES.items()):
            items = iter(create_dataset(family, size=4 * size, seed=10_000_000 * (number + 1) + 2_000_000 * place))
            count = 0
            while count < size:
                item = next(items)
                if item["question"] in seen:
                    continue
                seen.add(item["question"])
                row = {"source": family, "record_id": f"{family}-{split}-{count:04d}", "role": "source"}
                row |= {"prompt": item["question"], "completion": str(item["answer"]), "split": split}
                rows.append(row | {"planted": False})
                count += 1
    write_rows(path, rows)


def read_data(arguments: argparse.Namespace) -> list[Row]:
    limit, families = arguments.limit or 10**9, set(arguments.families.split(","))
    limits = {"pool": limit, "calibration": limit // 2, "held-out": limit // 2}
    kept = [row for row in read_rows(arguments.data) if int(row["record_id"].rpartition("-")[2]) < limits[row["split"]]]
    return [row for row in kept if row["source"] in families]


if __name__ == "__main__":
    main()

"""Which way of training in bfloat16 keeps float32's loss curve: ours or transformers' Trainer with peft.

    python benchmarks/training_gpu.py --make-data build/training-data.jsonl
    python benchmarks/training_precision.py --data build/training-data.jsonl WAY [WAY ...]
    python benchmarks/training_precision.py --table
    python benchmarks/training_precision.py --data build/training-data.jsonl --gradients
    python benchmarks/training_precision.py --data build/training-data.jsonl --device cuda --batch 32 --steps 20 WAY ...

The last one holds the gradients of ours and of peft under autocast, which is what the Trainer computes, against those
of float32, at the same factors. They are those after two steps in float32, so that neither factor is zero; beside the
relative error it counts the entries whose sign is wrong, since AdamW's first updates have the size of the rate whatever
the gradient's.

It runs on a CPU, or with `--device cuda`. Every way sees the same examples in the same order, starts from the same
factors and has the same rates; the base weights are rounded to bfloat16 in all of them but `exact`, so that what
differs is arithmetic alone. Each writes its losses and the norms of its gradients to the output directory ($OUT, or
build/training-precision); the table holds them against `float32`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gpu import named_gradients, own_steps
from measuring import read_rows
from training_gpu import ours, run_trainer

from calibudget.lm.loading import LanguageModel, load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples, padded_batch
from calibudget.training.example_order import plan_steps
from calibudget.training.optimizer_step import Learner
from calibudget.training.target_layers import add_adapter

PLAIN: dict[str, Any] = {"pack": False, "fuse": False, "compile": False, "graphs": False}
#: How each way is run: its side, its precision, and options of ours.
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "float32": ("ours", "float32", PLAIN),
    "exact": ("ours", "float32", PLAIN),
    "Trainer float32": ("Trainer", "float32", {}),
    "bfloat16": ("ours", "bfloat16", PLAIN),
    "bfloat16 packed": ("ours", "bfloat16", PLAIN | {"pack": True, "fuse": True}),
    "bfloat16 compiled": ("ours", "bfloat16", PLAIN | {"pack": True, "fuse": True, "compile": True}),
    "bfloat16 graphs": ("ours", "bfloat16", {"pack": True, "fuse": True, "compile": True, "graphs": True}),
    "Trainer bfloat16": ("Trainer", "bfloat16", {}),
}
REFERENCE = "float32"
#: Most tokens of an example, and most characters of prompt and response together.
LONGEST, CHARACTERS = 80, 160
#: Steps that the schedule is made for; the first of them are run.
PLANNED = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(repr(way) for way in WAYS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=42, help="of the factors' start and the order")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", "build/training-precision")))
    arguments = parser.parse_args()
    for way in arguments.ways:
        found = run_way(way, arguments)
        arguments.output.mkdir(parents=True, exist_ok=True)
        path = arguments.output / f"{way.replace(' ', '-')}-{arguments.seed}.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(way, [round(loss, 4) for loss in found["losses"]], f"{found['seconds']:.0f} s", flush=True)
    if arguments.gradients:
        print(compare_gradients(arguments))
    if arguments.table:
        print(table(arguments.output))


def run_way(way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Losses of one way's first steps."""
    side, dtype, options = WAYS[way]
    base = load(arguments, dtype, rounded=way != "exact")
    config = config_of(arguments)
    examples = read(base, arguments)
    start = time.perf_counter()
    if side == "Trainer":
        _, losses, _ = run_trainer(
            base.model, examples, config, micro_batch=arguments.batch, steps=arguments.steps, total=PLANNED
        )
    else:
        execution = execution_of(arguments, **options)
        learner = Learner(base.model, "embedded", config, execution)
        losses = [loss.item() for _, loss in own_steps(learner, examples, config, arguments.steps, planned=PLANNED)]
    return {"way": way, "seed": arguments.seed, "losses": losses, "seconds": time.perf_counter() - start}


def execution_of(arguments: argparse.Namespace, **options: Any) -> Execution:
    return Execution(device=arguments.device, batch_tokens=16_384, **options)


def load(arguments: argparse.Namespace, dtype: Any, *, rounded: bool = True) -> LanguageModel:
    """The model, its weights rounded to bfloat16 in any precision."""
    base = load_model(arguments.model, device=arguments.device, dtype=dtype)
    for parameter in base.model.parameters() if rounded else ():
        parameter.data = parameter.data.bfloat16().to(parameter.dtype)
    return base


def config_of(arguments: argparse.Namespace) -> TrainingConfig:
    return TrainingConfig(
        epochs=1, batch_size=arguments.batch, learning_rate=2e-4, max_length=LONGEST, seed=arguments.seed
    )


def read(base: LanguageModel, arguments: argparse.Namespace) -> list[TrainingExample]:
    """Short examples."""
    rows = read_rows(arguments.data)
    rows = [row for row in rows if len(row["prompt"]) + len(row["completion"]) <= CHARACTERS][::4]
    encoded = encode_examples(rows, base.encoder("alpaca"), max_length=4096, too_long="refuse")
    return [example for example in encoded if example.length <= LONGEST]


Gradients = dict[str, torch.Tensor]


def compare_gradients(arguments: argparse.Namespace) -> str:
    """Errors of the bfloat16 gradients of some batches, at the factors after two steps of float32."""
    config = config_of(arguments)
    base = load(arguments, "float32")
    examples = read(base, arguments)
    plan = [step.members for step in plan_steps(examples, config)]
    exact = Learner(base.model, "embedded", config, execution_of(arguments, **PLAIN))
    for members in plan[:2]:
        own_gradients(exact, examples, members)
        exact.update(config.factor_rates(config.learning_rate))
    values = {name: p.detach().clone() for name, p in exact.model.named_parameters() if p.requires_grad}
    batches = plan[2 : 2 + arguments.steps]
    expected = [own_gradients(exact, examples, members) for members in batches]
    del base, exact
    ways: dict[str, dict[str, Any] | None] = {
        "peft under autocast": None,
        "ours, padded": PLAIN,
        "ours, packed": PLAIN | {"pack": True},
        "ours, packed and fused": PLAIN | {"pack": True, "fuse": True},
    }
    lines = ["| way | batch | error of A | of B | wrong signs of A | of B |", "|---|---:|---:|---:|---:|---:|"]
    for way, options in ways.items():
        model, learner = load(arguments, "bfloat16").model, None
        if options is None:
            model = add_adapter(model, config, "embedded")
        else:
            learner = Learner(model, "embedded", config, execution_of(arguments, **options))
            model = learner.model
        for name, value in values.items():
            model.get_parameter(name).data.copy_(value)
        for number, (members, wanted) in enumerate(zip(batches, expected, strict=True), start=1):
            if learner is None:
                found = autocast_gradients(model, examples, members)
            else:
                found = own_gradients(learner, examples, members)
            lines.append(f"| {way} | {number} | {' | '.join(errors(found, wanted))} |")
            print(lines[-1], flush=True)
        del model, learner
    return "\n".join(lines)


def own_gradients(learner: Learner, examples: Sequence[TrainingExample], members: Sequence[int]) -> Gradients:
    chosen = [examples[index] for index in members]
    return ours(learner, chosen, sum(example.response_length for example in chosen))


def autocast_gradients(model: Any, examples: Sequence[TrainingExample], members: Sequence[int]) -> Gradients:
    """What the Trainer computes with `bf16`: padded rows, all logits, transformers' own loss."""
    chosen = [examples[index] for index in members]
    batch = padded_batch(chosen).to(model.device)
    labels = torch.full_like(batch.input_ids, -100)
    for row, example in enumerate(chosen):
        labels[row, example.prompt_length : example.length] = batch.input_ids[
            row, example.prompt_length : example.length
        ]
    model.zero_grad()
    with torch.autocast(model.device.type, torch.bfloat16):
        output = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            labels=labels,
            num_items_in_batch=sum(example.response_length for example in chosen),
        )
    output.loss.backward()
    return named_gradients(model)


def errors(found: Gradients, wanted: Gradients) -> list[str]:
    """Relative error of all A and of all B factors' gradients, and the shares of entries whose sign is wrong."""
    sizes, signs = [], []
    for mark in (".lora_A.", ".lora_B."):
        one, other = (torch.cat([side[name].flatten() for name in wanted if mark in name]) for side in (found, wanted))
        sizes.append(f"{float((one - other).norm() / other.norm()):.4f}")
        signs.append(f"{float((one.sign() != other.sign()).float().mean()):.2%}")
    return sizes + signs


def table(directory: Path) -> str:
    """Every way's distance from float32, a row a way and seed."""
    found = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    references = {run["seed"]: run["losses"] for run in found if run["way"] == REFERENCE}
    lines = [
        "| seed | way | losses | mean difference from float32 | mean absolute | largest |",
        "|---:|---|---|---:|---:|---:|",
    ]
    for run in sorted(found, key=lambda run: (run["seed"], list(WAYS).index(run["way"]))):
        gaps = [loss - other for loss, other in zip(run["losses"], references[run["seed"]], strict=False)]
        sizes = [abs(gap) for gap in gaps]
        losses = " ".join(f"{loss:.3f}" for loss in run["losses"])
        count = len(gaps)
        lines.append(
            f"| {run['seed']} | {run['way']} | {losses} | {sum(gaps) / count:+.4f} | {sum(sizes) / count:.4f} "
            f"| {max(sizes):.4f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""LoRA+ training on a GPU: ours beside transformers' Trainer, and the matmul rate.

    python benchmarks/training_gpu.py --make-data build/training-data.jsonl      (here; needs reasoning-gym, no GPU)
    python benchmarks/training_gpu.py [--parts check,seven,small] [--model DIR] [--data FILE] [--output DIR]
    torchrun --nproc-per-node 2 benchmarks/training_gpu.py --parts scaling,shard (after a run on one GPU, `scaling`)

Parts: `check` holds gradients against a float32 reference that is neither packed nor compiled, and looks whether equal
runs give equal bits; `seven` times the 7B shape with random weights; `small` trains SmolLM2 (`--model`; random weights
of its shape without) on real text (`--data`; random ids without) to the same steps as the Trainer, and compares the
losses; `scaling` times the 7B shape on every GPU that torchrun started it on; `shard` trains it there through `train()`
with the frozen model whole on every GPU and parted among them, in the same way otherwise, and compares the losses.

TRL with Liger-Kernel, Unsloth and torchtune are beside ours in `training_peers.py`.

Both sides see the same examples in the same order, start from the same factors and use LoRA+. Tokens are those of
prompts and responses, padding never counted. Times are medians over steps, after warm-up. Prints one Markdown table
and writes it with all numbers to the output directory ($OUT, or benchmarks/results).
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import gpu
import numpy as np
import torch
from gpu import SEVEN, SMALL, Report, free, named_gradients, own_steps, random_model, step_rates, synthetic
from measuring import read_rows, write_rows

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import LanguageModel
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.devices import Devices
from calibudget.training.example_order import plan_steps, warmup_steps
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train
from calibudget.training.optimizer_step import Learner
from calibudget.training.report import StepReport
from calibudget.training.target_layers import add_adapter

FAMILIES = ("chain_sum", "letter_counting", "spell_backward", "word_sequence_reversal", "syllogism", "needle_haystack")
WARM_STEPS = 3
HELD_OUT = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    gpu.add_options(parser, parts="check,seven,small", seconds=520)
    parser.add_argument("--model", type=Path, help="directory of SmolLM2 as safetensors, with its tokenizer")
    parser.add_argument("--data", type=Path, help="rows of a train set, as --make-data writes them")
    parser.add_argument("--make-data", type=Path)
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of the loss curves")
    parser.add_argument("--timed", type=int, default=8, help="timed steps at the 7B shape")
    parser.add_argument("--profile", action="store_true", help="write where the device's time goes at the 7B shape")
    arguments = parser.parse_args()
    if arguments.make_data:
        make_data(arguments.make_data)
        return
    devices = Devices("cuda")
    report = Report(
        "training_gpu" if devices.count == 1 else f"training_gpu-{devices.count}",
        arguments.output,
        table,
        packages=("torch", "transformers", "peft", "accelerate", "triton"),
        seconds=arguments.seconds,
        is_main=devices.is_main,
    )
    parts = {"check": check, "seven": seven, "small": small, "scaling": scaling, "shard": sharded}
    report.run(arguments.parts, parts, arguments, report, devices)


def table(rows: list[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        ratio = gpu.times_peer(row, rows, "tokens_per_second")
        speeds = {"tokens/s": f"{row['tokens_per_second']:,.0f}", "of the Trainer's": f"{ratio:.2f}" if ratio else ""}
        speeds["of the matmul rate"] = f"{row['tokens_per_second'] / row['limit']:.1%}"
        cells.append({"part": row["part"], "what": row["what"], **speeds, "GiB": f"{row['peak_gib']:.1f}"})
    return gpu.columns(cells)


def limit_of(report: Report, model: Any, examples: Sequence[TrainingExample]) -> float:
    """Tokens a second if every operation ran at the matmul rate, the head counted where there are labels."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    return report.matmul / gpu.training_operations(plain, examples)


# --- data and models


def make_data(path: Path) -> None:
    """Rows of real text from generators that a model of this size learns; families start a million seeds apart."""
    from reasoning_gym import create_dataset

    rows = []
    for number, family in enumerate(FAMILIES):
        items = create_dataset(family, size=400, seed=1_000_000 * (number + 1))
        for index in range(400):
            item = items[index]
            row = {"source": family, "record_id": f"{family}-{index:04d}", "role": "source"}
            rows.append(row | {"prompt": item["question"], "completion": str(item["answer"])})
    write_rows(path, rows)


def stripped(model: Any) -> Any:
    """A model that training changed in place, as it was before."""
    from peft.tuners.lora import LoraLayer

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoraLayer):
                setattr(parent, name, child.get_base_layer())
        parent.__dict__.pop("forward", None)
    for mark in ("peft_config", "_hf_peft_config_loaded"):
        model.__dict__.pop(mark, None)
    model.set_attn_implementation("sdpa")
    return model.eval()


# --- the two sides


def time_ours(
    learner: Learner, examples: Sequence[TrainingExample], config: TrainingConfig, devices: Devices, steps: int
) -> tuple[float, list[float]]:
    """Tokens a second over the median step, all devices together, and the losses: the loop's own work per step."""
    events, losses, tokens = [], [], []
    for count, loss in own_steps(learner, examples, config, steps + WARM_STEPS, devices=devices):
        losses.append(loss.clone())
        tokens.append(count)
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
    torch.cuda.synchronize()
    stamps = [events[0].elapsed_time(event) / 1e3 for event in events]
    return median(step_rates(tokens, stamps, WARM_STEPS)), [value.item() for value in losses]


def run_trainer(
    model: Any,
    examples: Sequence[TrainingExample],
    config: TrainingConfig,
    *,
    micro_batch: int,
    steps: int,
    total: int | None = None,
) -> tuple[float, list[float], Any]:
    """transformers' Trainer on a peft model, padded: tokens a second over the median step, losses, the model."""
    from transformers import Trainer, TrainingArguments, get_cosine_schedule_with_warmup

    adapted = add_adapter(model, config, "benchmark")
    adapted.train()
    plan = plan_steps(examples, config)[:steps]
    ordered = [examples[i] for step in plan for i in step.members]
    rows = [
        {
            "input_ids": torch.from_numpy(e.ids.astype(np.int64)),
            "labels": torch.from_numpy(np.where(np.arange(e.length) < e.prompt_length, -100, e.ids).astype(np.int64)),
        }
        for e in ordered
    ]

    def collate(features: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        pad = torch.nn.utils.rnn.pad_sequence
        ids = pad([f["input_ids"] for f in features], batch_first=True)
        mask = pad([torch.ones_like(f["input_ids"]) for f in features], batch_first=True)
        labels = pad([f["labels"] for f in features], batch_first=True, padding_value=-100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    stamps: list[float] = []
    losses: list[float] = []

    def stamp() -> None:
        gpu.wait_for_cards()
        stamps.append(time.perf_counter())

    optimizer = gpu.lora_plus(adapted, config)
    planned = total or steps
    warmup = warmup_steps(planned, config.warmup_fraction)
    schedule = get_cosine_schedule_with_warmup(optimizer, warmup, planned)
    arguments = TrainingArguments(
        output_dir="/tmp/trainer",
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=config.batch_size // micro_batch,
        bf16=model.dtype == torch.bfloat16,
        use_cpu=not torch.cuda.is_available(),
        max_steps=steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        max_grad_norm=config.max_grad_norm or 0.0,
    )
    trainer = gpu.in_order(Trainer)(
        model=adapted,
        args=arguments,
        data_collator=collate,
        train_dataset=rows,
        callbacks=[gpu.stamping(stamp, losses)],
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    tokens = [sum(examples[i].length for i in step.members) for step in plan]
    return median(step_rates(tokens, stamps, WARM_STEPS)), losses, adapted


# --- parts


def check(_arguments: argparse.Namespace, report: Report, _devices: Devices) -> None:
    """Gradients of every way of running, against float32 examples taken one at a time."""
    shape = SMALL | {"num_hidden_layers": 4, "vocab_size": 4096}
    config = TrainingConfig(rank=32, scaling=32.0, batch_size=16)
    examples = synthetic(16, 4096, mean=150, seed=3)
    tokens = sum(e.response_length for e in examples)
    expected = reference_gradients(random_model(shape, dtype=torch.float32), config, examples, tokens)
    plain = reference_gradients(random_model(shape), config, examples, tokens)
    worst = relative_error(plain, expected)
    report.note("check", f"peft in bfloat16, one example at a time: relative gradient error {worst:.2e}")
    ways = {
        "float32, padded": (torch.float32, Execution(compile=False, graphs=False, pack=False), 1e-4),
        "float32, packed by mask": (torch.float32, Execution(compile=False, graphs=False, pack=True), 1e-4),
        "bfloat16, padded": (torch.bfloat16, Execution(compile=False, graphs=False, pack=False), None),
        "bfloat16, packed": (torch.bfloat16, Execution(compile=False, graphs=False), None),
        "bfloat16, packed, projections apart": (
            torch.bfloat16,
            Execution(compile=False, graphs=False, fuse=False),
            None,
        ),
        "bfloat16, packed, two passes": (
            torch.bfloat16,
            Execution(compile=False, graphs=False, batch_tokens=1300),
            None,
        ),
        "bfloat16, packed, graphs": (torch.bfloat16, Execution(compile=False, graphs=True), None),
        "bfloat16, packed, compiled": (torch.bfloat16, Execution(compile=True, graphs=False), None),
        "bfloat16, packed, compiled, graphs": (torch.bfloat16, Execution(compile=True, graphs=True), None),
        "bfloat16, packed, compiled, checkpointed": (
            torch.bfloat16,
            Execution(compile=True, graphs=False, gradient_checkpointing=True),
            None,
        ),
    }
    for name, (dtype, execution, bound) in ways.items():
        if not report.has_time(f"check, {name}"):
            continue
        with report.part(f"check, {name}"):
            learner = Learner(random_model(shape, dtype=dtype), "check", config, execution)
            prepared(learner.model)
            first = ours(learner, examples, tokens)
            again = ours(learner, examples, tokens)
            error = relative_error(first, expected)
            same = all(torch.equal(first[key], again[key]) for key in first)
            verdict = "ok" if error <= (bound or 1.25 * worst) else "TOO LARGE"
            packed = "packed" if learner.packs_sequences else "padded"
            report.note("check", f"{name} ({packed}): error {error:.2e} {verdict}; same bits again: {same}")
        free()
    with report.part("check, deterministic"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        bits = []
        for _ in range(2):
            learner = Learner(random_model(shape), "check", config, Execution())
            prepared(learner.model)
            bits.append(ours(learner, examples, tokens))
            for _ in range(2):
                learner.update((1e-4, 1e-3))
                bits[-1] = ours(learner, examples, tokens)
        equal = all(torch.equal(bits[0][key], bits[1][key]) for key in bits[0])
        report.note("check", f"deterministic, compiled and graphs, two learners over three steps: same bits {equal}")
    torch.use_deterministic_algorithms(False)


def prepared(model: Any) -> Any:
    """B away from zero, by a function of its place alone, so that A has gradients."""
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            places = torch.arange(parameter.numel(), device=parameter.device)
            parameter.data.copy_((torch.sin(places * 0.7) * 0.02).view(parameter.shape))
    return model


def ours(learner: Learner, examples: Sequence[TrainingExample], tokens: int) -> dict[str, torch.Tensor]:
    learner.gradients(learner.batches(examples, range(len(examples))), tokens)
    return named_gradients(learner.model)


def reference_gradients(
    model: Any, config: TrainingConfig, examples: Sequence[TrainingExample], tokens: int
) -> dict[str, torch.Tensor]:
    """peft's own layers, transformers' own attention and logits, one example at a time."""
    reference = prepared(add_adapter(model, config, "check"))
    for example in examples:
        ids = torch.from_numpy(example.ids.astype(np.int64)).cuda()[None]
        with torch.autocast("cuda", torch.bfloat16, enabled=model.dtype == torch.bfloat16):
            logits = reference(input_ids=ids, use_cache=False).logits[0, example.prompt_length - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits.float(), ids[0, example.prompt_length :], reduction="sum")
        (loss / tokens).backward()
    return named_gradients(reference)


def relative_error(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Largest over the factors of |found - expected| / |expected|, the norms over all layers."""
    errors = []
    for mark in (".lora_A.", ".lora_B."):
        names = [name for name in expected if mark in name]
        difference = torch.cat([(found[name] - expected[name]).flatten() for name in names]).norm()
        errors.append(float(difference / torch.cat([expected[name].flatten() for name in names]).norm()))
    return max(errors)


def seven(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """The 7B shape with random weights: the Trainer first, then ours."""
    config = TrainingConfig(epochs=1)
    steps = arguments.timed + WARM_STEPS
    examples = synthetic(config.batch_size * steps, SEVEN["vocab_size"], mean=233)
    model = random_model(SEVEN)
    free()
    with report.part("seven, Trainer"):
        speed, losses, adapted = run_trainer(model, examples, config, micro_batch=8, steps=min(steps, 7))
        limit = limit_of(report, adapted, examples)
        report.row("seven", "Trainer + peft, padded, micro-batch 8", tokens_per_second=speed, limit=limit, peer=True)
        report.curves["seven Trainer"] = losses
        del adapted
    ways = {
        "ours": Execution(),
        "ours, projections apart": Execution(fuse=False),
        "ours, not compiled": Execution(compile=False),
        "ours, gradient checkpointing": Execution(gradient_checkpointing=True),
    }
    for name, execution in ways.items():
        model = stripped(model)
        time_way(arguments, report, "seven", name, model, examples, config, execution, devices, arguments.timed)
    compare_curves(report, "seven", "seven Trainer", "seven ours")


def time_way(
    arguments: argparse.Namespace,
    report: Report,
    part: str,
    name: str,
    model: Any,
    examples: Sequence[TrainingExample],
    config: TrainingConfig,
    execution: Execution,
    devices: Devices,
    steps: int,
) -> None:
    """One way of ours, if there is time."""
    if not report.has_time(name):
        return
    free()
    with report.part(f"{part}, {name}"):
        torch._dynamo.reset()
        learner = Learner(model, part, config, execution)
        seconds, (speed, losses) = gpu.timed(lambda: time_ours(learner, examples, config, devices, steps))
        limit, packed = limit_of(report, learner.model, examples), learner.packs_sequences
        report.row(part, name, tokens_per_second=speed, limit=limit, seconds_in_all=seconds, packed=packed)
        report.curves.setdefault(f"{part} {name}", losses)
        if arguments.profile and name == "ours":
            work = lambda: time_ours(learner, examples, config, devices, 1)  # noqa: E731
            gpu.profiled(work, arguments.output / f"profile_{part}.txt")


def scaling(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """The 7B shape on all devices; run it on one and on several, on one machine."""
    config = TrainingConfig(epochs=1)
    examples = synthetic(config.batch_size * (arguments.timed + WARM_STEPS), SEVEN["vocab_size"], mean=233)
    learner = Learner(random_model(SEVEN), "seven", config, Execution())
    speed, losses = time_ours(learner, examples, config, devices, arguments.timed)
    report.curves[f"scaling {devices.count}"] = losses
    report.row(
        "scaling",
        f"ours on {devices.count} GPU",
        tokens_per_second=speed,
        limit=limit_of(report, learner.model, examples) * devices.count,
    )


def sharded(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """The 7B shape whole on each device, and parted among them; one process can't do it."""
    config = TrainingConfig(rank=16, scaling=16.0, epochs=1)
    examples = synthetic(config.batch_size * (arguments.timed + WARM_STEPS), SEVEN["vocab_size"], mean=233)
    plain = Execution(fuse=False, graphs=False)
    parted = replace(plain, shard=True)
    ways = {"whole": plain, "parted": parted, "parted, not compiled": replace(parted, compile=False)}
    for name, execution in ways.items():
        model = random_model(SEVEN)
        losses: list[float] = []
        stamps: list[float] = []

        def listen(told: StepReport, losses: list[float] = losses, stamps: list[float] = stamps) -> None:
            if not stamps:  # a model is whole until it is parted, and only then does training begin
                torch.cuda.reset_peak_memory_stats()
            losses.append(told.loss)
            stamps.append(time.perf_counter())

        with training_folder(devices) as where:
            job = job_of(model, examples, config, execution, where / name)
            train(job, devices=devices, listener=listen)
        if devices.is_main:
            lengths = [sum(examples[i].length for i in step.members) for step in plan_steps(examples, config)]
            speed = sum(lengths[WARM_STEPS:-1]) / (stamps[-2] - stamps[WARM_STEPS - 1])
            limit = limit_of(report, model, examples) * devices.count
            report.row("shard", f"{name}, {devices.count} GPUs", tokens_per_second=speed, limit=limit)
            report.curves[f"shard {name}"] = losses
        del job, model
        free()
    compare_curves(report, "shard", "shard whole", "shard parted")


def job_of(
    model: Any, examples: Sequence[TrainingExample], config: TrainingConfig, execution: Execution, where: Path
) -> TrainingJob:
    language_model = LanguageModel(model=model, tokenizer=None, identity={"name": "benchmark"}, context_length=None)
    return TrainingJob(
        language_model=language_model,
        examples=examples,
        config=config,
        execution=execution,
        output_dir=where,
        evidence={},
    )


@contextmanager
def training_folder(devices: Devices) -> Iterator[Path]:
    """A folder that all processes share, empty at first and gone afterwards."""
    where = Path("/tmp/training-gpu")
    if devices.is_main:
        shutil.rmtree(where, ignore_errors=True)
    devices.wait()
    yield where
    devices.wait()
    if devices.is_main:
        shutil.rmtree(where, ignore_errors=True)


def small(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """SmolLM2 to the same steps on both sides: speed, loss curves, held-out loss."""
    if arguments.model is None:
        report.note("small", "no --model: random weights of SmolLM2's shape")
    examples, held_out = small_data(arguments)
    mean = sum(e.length for e in examples) / len(examples)
    report.note("small", f"{len(examples)} examples of {mean:.0f} tokens on average, {len(held_out)} held out")
    steps = arguments.steps
    config = TrainingConfig(epochs=math.ceil(steps * 32 / len(examples)), learning_rate=2e-4)
    total = len(plan_steps(examples, config))
    report.note("small", f"held-out loss before: {held_out_loss(small_model(arguments), held_out):.4f}")
    if report.has_time("small, train()"):
        with report.part("small, train()"):
            through_the_product(arguments, report, devices, examples, held_out, config)
    for micro_batch in (32, 8):
        if not report.has_time(f"small, Trainer {micro_batch}"):
            continue
        with report.part(f"small, Trainer {micro_batch}"):
            speed, losses, adapted = run_trainer(
                small_model(arguments), examples, config, micro_batch=micro_batch, steps=steps, total=total
            )
            limit = limit_of(report, adapted, examples)
            report.row(
                "small",
                f"Trainer + peft, padded, micro-batch {micro_batch}",
                tokens_per_second=speed,
                limit=limit,
                peer=micro_batch == 32,
            )
            report.curves[f"small Trainer {micro_batch}"] = losses
            if micro_batch == 32:
                report.note("small", f"held-out loss after the Trainer: {held_out_loss(adapted, held_out):.4f}")
            del adapted
        free()
    ways = {
        "ours": Execution(),
        "ours, projections apart": Execution(fuse=False),
        "ours, no graphs": Execution(graphs=False),
        "ours, not compiled, graphs": Execution(compile=False, graphs=True),
        "ours, not compiled, no graphs": Execution(compile=False, graphs=False),
    }
    for name, execution in ways.items():
        count = steps - WARM_STEPS if name == "ours" else 12
        model = small_model(arguments)
        time_way(arguments, report, "small", name, model, examples, config, execution, devices, count)
    compare_curves(report, "small", "small Trainer 32", "small ours")
    compare_curves(report, "small", "small Trainer 32", "small Trainer 8")


def through_the_product(
    arguments: argparse.Namespace,
    report: Report,
    devices: Devices,
    examples: Sequence[TrainingExample],
    held_out: Sequence[TrainingExample],
    config: TrainingConfig,
) -> None:
    """The whole of `train`, files included, in deterministic mode too; its losses are those of the curve."""
    from peft import PeftModel

    where = Path("/tmp/training-gpu")
    for deterministic in (False, True):
        if not report.has_time("small, deterministic"):
            continue
        shutil.rmtree(where, ignore_errors=True)
        torch._dynamo.reset()
        fresh = small_model(arguments)
        stamps: list[float] = []
        job = job_of(fresh, examples, config, Execution(deterministic=deterministic), where)
        start = time.perf_counter()
        result = train(job, devices=devices, listener=lambda _report, stamps=stamps: stamps.append(time.perf_counter()))
        seconds = time.perf_counter() - start
        lines = read_rows(result.log)
        # the last two steps are looked at together, so the last one's stamp says nothing
        counted = sum(line["tokens"] for line in lines[WARM_STEPS:-1])
        speed = counted / (stamps[-2] - stamps[WARM_STEPS - 1])
        name = "ours, train()" + (", deterministic" if deterministic else "")
        limit = limit_of(report, fresh, examples)
        report.row("small", name, tokens_per_second=speed, limit=limit, seconds_in_all=seconds, steps=result.steps)
        if not deterministic:
            report.curves["small ours"] = [line["loss"] for line in lines]
            adapted = PeftModel.from_pretrained(small_model(arguments), str(result.adapter))  # as anyone loads it
            report.note("small", f"held-out loss after ours: {held_out_loss(adapted, held_out):.4f}")
        free()


def small_model(arguments: argparse.Namespace) -> Any:
    """SmolLM2, or random weights of its shape."""
    from transformers import AutoModelForCausalLM

    if arguments.model is None:
        return random_model(SMALL)
    options = {"dtype": torch.bfloat16, "use_safetensors": True, "local_files_only": True}
    return AutoModelForCausalLM.from_pretrained(arguments.model, **options).cuda().eval()


def small_data(arguments: argparse.Namespace) -> tuple[Sequence[TrainingExample], Sequence[TrainingExample]]:
    """Train and held-out examples."""
    if arguments.data is None or arguments.model is None:
        examples = synthetic(arguments.steps * 32 + HELD_OUT, SMALL["vocab_size"], mean=130)
        return examples[HELD_OUT:], examples[:HELD_OUT]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    examples = encode_examples(read_rows(arguments.data), Encoder("alpaca", tokenizer), max_length=1024, too_long="cut")
    held = set(range(0, len(examples), len(examples) // HELD_OUT))
    train_set = [example for index, example in enumerate(examples) if index not in held]
    # whole batches only: the Trainer doesn't stop a batch at the end of an epoch
    count = min(arguments.steps, len(train_set) // 32) * 32
    return sorted_by_key(train_set)[:count], [examples[index] for index in sorted(held)]


def sorted_by_key(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """In an order that mixes the sources, so that a part of them is like the whole."""
    (step,) = plan_steps(examples, TrainingConfig(epochs=1, batch_size=len(examples), seed=1))
    return [examples[index] for index in step.members]


@torch.inference_mode()
def held_out_loss(model: Any, examples: Sequence[TrainingExample]) -> float:
    """Mean loss of response tokens, one example at a time, through transformers' own forward."""
    model.eval()
    total = 0.0
    for example in examples:
        ids = torch.from_numpy(example.ids.astype(np.int64)).cuda()[None]
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=ids, use_cache=False).logits[0, example.prompt_length - 1 : -1]
        total += float(
            torch.nn.functional.cross_entropy(logits.float(), ids[0, example.prompt_length :], reduction="sum")
        )
    return total / sum(e.response_length for e in examples)


def compare_curves(report: Report, part: str, one: str, other: str) -> None:
    first, second = report.curves.get(one, []), report.curves.get(other, [])
    count = min(len(first), len(second))
    if count:
        gaps = [abs(a - b) for a, b in zip(first, second, strict=False)]
        text = f"mean |difference| {sum(gaps) / count:.4f}, largest {max(gaps):.4f}, over {count} steps"
        report.note(
            part, f"losses of {one!r} and {other!r}: {text} (first {first[0]:.3f}, last {first[count - 1]:.3f})"
        )


if __name__ == "__main__":
    main()

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
import json
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu import SEVEN, SMALL, found, free, machine, matmul_rate, peak_gib, random_model, synthetic, training_operations

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import LanguageModel
from calibudget.training.adapter import add_adapter
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.devices import Devices
from calibudget.training.job import TrainingJob
from calibudget.training.learner import Learner
from calibudget.training.loop import train
from calibudget.training.order import plan_steps, rate_factor, share, warmup_steps
from calibudget.training.report import StepReport

FAMILIES = ("chain_sum", "letter_counting", "spell_backward", "word_sequence_reversal", "syllogism", "needle_haystack")
WARM_STEPS = 3
HELD_OUT = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", default="check,seven,small")
    parser.add_argument("--model", type=Path, help="directory of SmolLM2 as safetensors, with its tokenizer")
    parser.add_argument("--data", type=Path, help="rows of a train set, as --make-data writes them")
    parser.add_argument("--make-data", type=Path)
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of the loss curves")
    parser.add_argument("--timed", type=int, default=8, help="timed steps at the 7B shape")
    parser.add_argument("--seconds", type=float, default=520, help="leave out what is left after so long")
    parser.add_argument("--profile", action="store_true", help="write where the device's time goes at the 7B shape")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", "benchmarks/results")))
    arguments = parser.parse_args()
    if arguments.make_data:
        make_data(arguments.make_data)
        return
    devices = Devices("cuda")
    report = Report(arguments.output, devices, arguments.seconds)
    parts = {"check": check, "seven": seven, "small": small, "scaling": scaling, "shard": sharded}
    for name in arguments.parts.split(","):
        if not report.has_time(name):
            continue
        start = time.perf_counter()
        try:
            parts[name](arguments, report, devices)
        except Exception as error:  # one part's fault must not cost the others' measurements
            report.note(name, f"FAILED: {type(error).__name__}: {error}")
            import traceback

            traceback.print_exc()
        report.note(name, f"took {time.perf_counter() - start:.0f} s")
        free()
    report.close()


class Report:
    """Collects rows and notes, and writes them after each."""

    def __init__(self, directory: Path, devices: Devices, seconds: float) -> None:
        self._end = time.perf_counter() + seconds
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.curves: dict[str, list[float]] = {}
        self._directory, self._devices = directory, devices
        self.matmul = matmul_rate()
        self.machine = f"{machine()}, {found('torch', 'transformers', 'peft', 'accelerate', 'triton')}"
        self.note("machine", f"{self.machine}; matmul {self.matmul / 1e12:.0f} TFLOP/s (8192 cubed, bfloat16)")

    def has_time(self, what: str) -> bool:
        """Whether to begin another measurement; what is left out is noted."""
        if time.perf_counter() < self._end:
            return True
        self.note(what, "left out, no time left")
        return False

    def row(self, part: str, what: str, speed: float, limit: float, **more: Any) -> None:
        peak = peak_gib()
        self.rows.append(
            {"part": part, "what": what, "tokens_per_second": speed, "limit": limit, "peak_gib": peak} | more
        )
        print(self.rows[-1], flush=True)
        self._write()

    def note(self, part: str, text: str) -> None:
        self.notes.append(f"{part}: {text}")
        print(self.notes[-1], flush=True)
        self._write()

    def table(self) -> str:
        lines = [
            "| part | what | tokens/s | of the Trainer's | of the matmul rate | GiB |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            peers = [other for other in self.rows if other["part"] == row["part"] and other.get("peer")]
            ratio = f"{row['tokens_per_second'] / peers[0]['tokens_per_second']:.2f}" if peers else ""
            share_of_rate = f"{row['tokens_per_second'] / row['limit']:.1%}"
            cells = (
                row["part"],
                row["what"],
                f"{row['tokens_per_second']:,.0f}",
                ratio,
                share_of_rate,
                f"{row['peak_gib']:.1f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def close(self) -> None:
        if self._devices.is_main:
            print(self.table())

    def _write(self) -> None:
        if self._devices.is_main:
            self._directory.mkdir(parents=True, exist_ok=True)
            suffix = "" if self._devices.count == 1 else f"-{self._devices.count}"
            body = {
                "machine": self.machine,
                "matmul": self.matmul,
                "rows": self.rows,
                "notes": self.notes,
                "curves": self.curves,
            }
            (self._directory / f"training_gpu{suffix}.json").write_text(json.dumps(body, indent=1))
            (self._directory / f"training_gpu{suffix}.md").write_text(self.table())


def limit_of(report: Report, model: Any, examples: Sequence[TrainingExample]) -> float:
    """Tokens a second if every operation ran at the matmul rate, the head counted where there are labels."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    return report.matmul / training_operations(plain, examples)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{len(rows)} rows, {path.stat().st_size:,} bytes: {path}")


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
    lengths = [example.length for example in examples]
    plan = plan_steps(examples, config)[: steps + WARM_STEPS]
    events, losses, tokens = [], [], []
    for number, step in enumerate(plan):
        own = share(step.members, lengths, devices.count)[devices.rank]
        response_tokens = sum(examples[i].response_length for i in step.members)
        loss = learner.gradients(learner.batches(examples, own), response_tokens)
        devices.add_up([*(factor.gradient for factor in learner.factors), loss])
        factor = rate_factor(number, len(plan), warmup_steps(len(plan), config.warmup_fraction), config.schedule)
        learner.update(config.factor_rates(config.learning_rate * factor))
        losses.append(loss.clone())
        tokens.append(sum(lengths[i] for i in step.members))
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
    torch.cuda.synchronize()
    rates = [
        1e3 * count / before.elapsed_time(after)
        for count, before, after in zip(tokens[1:], events, events[1:], strict=False)
    ]
    return statistics.median(rates[WARM_STEPS - 1 :]), [value.item() for value in losses]


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
    from peft.optimizers import create_loraplus_optimizer
    from torch.utils.data import SequentialSampler
    from transformers import Trainer, TrainerCallback, TrainingArguments, get_cosine_schedule_with_warmup

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

    stamps, losses = [], []

    class Stamps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            stamps.append(time.perf_counter())

        def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_kwargs: Any) -> None:
            if logs and "loss" in logs:
                losses.append(float(logs["loss"]))

    class Ordered(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)

    a_rate, _ = config.factor_rates(config.learning_rate)
    optimizer = create_loraplus_optimizer(
        adapted, torch.optim.AdamW, lr=a_rate, loraplus_lr_ratio=config.learning_rate_ratio, loraplus_weight_decay=0.0
    )
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
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
    trainer = Ordered(
        model=adapted,
        args=arguments,
        data_collator=collate,
        train_dataset=rows,
        callbacks=[Stamps()],
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    tokens = [sum(examples[i].length for i in step.members) for step in plan]
    rates = [count / (b - a) for count, a, b in zip(tokens[1:], stamps, stamps[1:], strict=False)]
    return statistics.median(rates[WARM_STEPS - 1 :] or rates), losses, adapted


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
        with part_of(report, f"check, {name}"):
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
    with part_of(report, "check, deterministic"):
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


@contextmanager
def part_of(report: Report, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        import traceback

        traceback.print_exc()
        report.note(name, f"FAILED: {type(error).__name__}: {str(error)[:400]}")


def prepared(model: Any) -> Any:
    """B away from zero, by a function of its place alone, so that A has gradients."""
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            places = torch.arange(parameter.numel(), device=parameter.device)
            parameter.data.copy_((torch.sin(places * 0.7) * 0.02).view(parameter.shape))
    return model


def ours(learner: Learner, examples: Sequence[TrainingExample], tokens: int) -> dict[str, torch.Tensor]:
    learner.gradients(learner.batches(examples, range(len(examples))), tokens)
    return {name: p.grad.float().clone() for name, p in learner.model.named_parameters() if p.requires_grad}


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
    return {name: p.grad.float().clone() for name, p in reference.named_parameters() if p.requires_grad}


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
    with part_of(report, "seven, Trainer"):
        speed, losses, adapted = run_trainer(model, examples, config, micro_batch=8, steps=min(steps, 7))
        limit = limit_of(report, adapted, examples)
        report.row("seven", "Trainer + peft, padded, micro-batch 8", speed, limit, peer=True)
        report.curves["seven Trainer"] = losses
        del adapted
    model = stripped(model)
    free()
    ways = {
        "ours": Execution(),
        "ours, projections apart": Execution(fuse=False),
        "ours, not compiled": Execution(compile=False),
        "ours, gradient checkpointing": Execution(gradient_checkpointing=True),
    }
    for name, execution in ways.items():
        if not report.has_time(name):
            continue
        with part_of(report, f"seven, {name}"):
            torch._dynamo.reset()
            learner = Learner(model, "seven", config, execution)
            start = time.perf_counter()
            speed, losses = time_ours(learner, examples, config, devices, arguments.timed)
            seconds = time.perf_counter() - start
            limit = limit_of(report, learner.model, examples)
            report.row("seven", name, speed, limit, seconds_in_all=seconds, packed=learner.packs_sequences)
            report.curves[f"seven {name}"] = losses
            if arguments.profile and name == "ours":
                profile(report, arguments.output, learner, examples, config, devices)
            del learner
        model = stripped(model)
        free()
    compare_curves(report, "seven", "seven Trainer", "seven ours")


def profile(
    report: Report, output: Path, learner: Learner, examples: Any, config: TrainingConfig, devices: Devices
) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        time_ours(learner, examples, config, devices, 1)
    table = profiled.key_averages().table(sort_by="self_cuda_time_total", row_limit=45, max_name_column_width=90)
    (output / "profile_seven.txt").write_text(table)
    report.note("seven", "profile written to profile_seven.txt")


def scaling(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """The 7B shape on all devices; run it on one and on several, on one machine."""
    config = TrainingConfig(epochs=1)
    examples = synthetic(config.batch_size * (arguments.timed + WARM_STEPS), SEVEN["vocab_size"], mean=233)
    learner = Learner(random_model(SEVEN), "seven", config, Execution())
    speed, losses = time_ours(learner, examples, config, devices, arguments.timed)
    report.curves[f"scaling {devices.count}"] = losses
    report.row(
        "scaling", f"ours on {devices.count} GPU", speed, limit_of(report, learner.model, examples) * devices.count
    )


def sharded(arguments: argparse.Namespace, report: Report, devices: Devices) -> None:
    """The 7B shape whole on each device, and parted among them; one process can't do it."""
    config = TrainingConfig(rank=16, scaling=16.0, epochs=1)
    examples = synthetic(config.batch_size * (arguments.timed + WARM_STEPS), SEVEN["vocab_size"], mean=233)
    plain = Execution(fuse=False, compile=False, graphs=False)
    for name, execution in {"whole": plain, "parted": replace(plain, shard=True)}.items():
        model = random_model(SEVEN)
        losses: list[float] = []
        stamps: list[float] = []

        def listen(told: StepReport, losses: list[float] = losses, stamps: list[float] = stamps) -> None:
            if not stamps:  # a model is whole until it is parted, and only then does training begin
                torch.cuda.reset_peak_memory_stats()
            losses.append(told.loss)
            stamps.append(time.perf_counter())

        with training_folder(devices) as where:
            language_model = LanguageModel(model=model, tokenizer=None, identity={"name": "seven"}, context_length=None)
            job = TrainingJob(
                language_model=language_model,
                examples=examples,
                config=config,
                execution=execution,
                output_dir=where / name,
                evidence={},
            )
            train(job, devices=devices, listener=listen)
        if devices.is_main:
            lengths = [sum(examples[i].length for i in step.members) for step in plan_steps(examples, config)]
            speed = sum(lengths[WARM_STEPS:-1]) / (stamps[-2] - stamps[WARM_STEPS - 1])
            limit = limit_of(report, model, examples) * devices.count
            report.row("shard", f"{name}, {devices.count} GPUs", speed, limit)
            report.curves[f"shard {name}"] = losses
        del language_model, job, model
        free()
    compare_curves(report, "shard", "shard whole", "shard parted")


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
    load: Callable[[], Any]
    if arguments.model is None:
        report.note("small", "no --model: random weights of SmolLM2's shape")
        load = lambda: random_model(SMALL)  # noqa: E731
    else:
        load = lambda: pretrained(arguments.model)  # noqa: E731
    examples, held_out = small_data(arguments)
    mean = sum(e.length for e in examples) / len(examples)
    report.note("small", f"{len(examples)} examples of {mean:.0f} tokens on average, {len(held_out)} held out")
    steps = arguments.steps
    config = TrainingConfig(epochs=math.ceil(steps * 32 / len(examples)), learning_rate=2e-4)
    total = len(plan_steps(examples, config))
    report.note("small", f"held-out loss before: {held_out_loss(load(), held_out):.4f}")
    if report.has_time("small, train()"):
        with part_of(report, "small, train()"):
            through_the_product(arguments, report, devices, load(), examples, held_out, config)
    for micro_batch in (32, 8):
        if not report.has_time(f"small, Trainer {micro_batch}"):
            continue
        with part_of(report, f"small, Trainer {micro_batch}"):
            speed, losses, adapted = run_trainer(
                load(), examples, config, micro_batch=micro_batch, steps=steps, total=total
            )
            limit = limit_of(report, adapted, examples)
            report.row(
                "small", f"Trainer + peft, padded, micro-batch {micro_batch}", speed, limit, peer=micro_batch == 32
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
        if not report.has_time(name):
            continue
        with part_of(report, f"small, {name}"):
            torch._dynamo.reset()
            learner = Learner(load(), "small", config, execution)
            count = steps - WARM_STEPS if name == "ours" else 12
            start = time.perf_counter()
            speed, losses = time_ours(learner, examples, config, devices, count)
            seconds = time.perf_counter() - start
            limit = limit_of(report, learner.model, examples)
            report.row("small", name, speed, limit, seconds_in_all=seconds, packed=learner.packs_sequences)
            del learner
        free()
    compare_curves(report, "small", "small Trainer 32", "small ours")
    compare_curves(report, "small", "small Trainer 32", "small Trainer 8")


def through_the_product(
    arguments: argparse.Namespace,
    report: Report,
    devices: Devices,
    model: Any,
    examples: Sequence[TrainingExample],
    held_out: Sequence[TrainingExample],
    config: TrainingConfig,
) -> None:
    """The whole of `train`, files included, in deterministic mode too; its losses are those of the curve."""
    where = Path("/tmp/training-gpu")
    for deterministic in (False, True):
        if not report.has_time("small, deterministic"):
            continue
        shutil.rmtree(where, ignore_errors=True)
        torch._dynamo.reset()
        fresh = model if not deterministic else pretrained(arguments.model) if arguments.model else random_model(SMALL)
        language_model = LanguageModel(model=fresh, tokenizer=None, identity={"name": "small"}, context_length=None)
        stamps: list[float] = []
        job = TrainingJob(
            language_model=language_model,
            examples=examples,
            config=config,
            execution=Execution(deterministic=deterministic),
            output_dir=where,
            evidence={},
        )
        start = time.perf_counter()
        result = train(job, devices=devices, listener=lambda _report, stamps=stamps: stamps.append(time.perf_counter()))
        seconds = time.perf_counter() - start
        lines = [json.loads(line) for line in result.log.read_text().splitlines()]
        # the last two steps are looked at together, so the last one's stamp says nothing
        counted = sum(line["tokens"] for line in lines[WARM_STEPS:-1])
        speed = counted / (stamps[-2] - stamps[WARM_STEPS - 1])
        name = "ours, train()" + (", deterministic" if deterministic else "")
        limit = limit_of(report, fresh, examples)
        report.row("small", name, speed, limit, seconds_in_all=seconds, steps=result.steps)
        if not deterministic:
            report.curves["small ours"] = [line["loss"] for line in lines]
            adapted = with_adapter(arguments, result.adapter)
            report.note("small", f"held-out loss after ours: {held_out_loss(adapted, held_out):.4f}")
        free()


def with_adapter(arguments: argparse.Namespace, adapter: Path) -> Any:
    """A fresh model with the adapter that was written, as anyone loads it."""
    from peft import PeftModel

    base = random_model(SMALL) if arguments.model is None else pretrained(arguments.model)
    return PeftModel.from_pretrained(base, str(adapter))


def pretrained(directory: Path) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, use_safetensors=True, local_files_only=True
    )
    return model.cuda().eval()


def small_data(arguments: argparse.Namespace) -> tuple[Sequence[TrainingExample], Sequence[TrainingExample]]:
    """Train and held-out examples."""
    if arguments.data is None or arguments.model is None:
        examples = synthetic(arguments.steps * 32 + HELD_OUT, SMALL["vocab_size"], mean=130)
        return examples[HELD_OUT:], examples[:HELD_OUT]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    rows = [json.loads(line) for line in arguments.data.read_text().splitlines()]
    examples = encode_examples(rows, Encoder("alpaca", tokenizer), max_length=1024, too_long="cut")
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

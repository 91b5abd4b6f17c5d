"""What the benchmarks on GPUs share: reports, shapes, random models, lengths, rates, memory, time and our own steps."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import shlex
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import OUTPUT, installed

from calibudget.training.data import TrainingExample

#: LLaMA-2-7B and SmolLM2-135M.
SEVEN = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
SEVEN |= {"num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096}
SMALL = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
SMALL |= {"num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}


def add_options(parser: argparse.ArgumentParser, *, parts: str, seconds: float = 3600) -> None:
    """The options of a benchmark that has several parts."""
    parser.add_argument("--parts", default=parts)
    parser.add_argument("--seconds", type=float, default=seconds, help="leave out what is left after so long")
    parser.add_argument("--output", type=Path, default=OUTPUT)


class Report:
    """Rows and notes of one benchmark, written after each as JSON and as a Markdown table.

    Attributes:
        rows: what was measured.
        curves: losses by name.
        matmul: operations a second of square products.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        table: Callable[[list[dict[str, Any]]], list[str]],
        *,
        device: str = "cuda",
        packages: Sequence[str] = ("torch", "transformers", "peft"),
        seconds: float = math.inf,
        is_main: bool = True,
    ) -> None:
        self._end = time.perf_counter() + seconds
        self._path, self._table, self._is_main = directory / name, table, is_main
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.curves: dict[str, list[float]] = {}
        self.matmul = matmul_rate(device)
        self._machine = f"{machine(device)}, {installed(*packages)}"
        self.note("machine", f"{self._machine}; matmul {self.matmul / 1e12:.3g} TFLOP/s")

    def has_time(self, what: str) -> bool:
        """Whether to begin another measurement; what is left out is noted."""
        if time.perf_counter() < self._end:
            return True
        self.note(what, "left out, no time left")
        return False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """One part of the work: its fault doesn't cost the others' measurements, and its time is noted."""
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.note(name, f"FAILED: {type(error).__name__}: {str(error)[:400]}")
        self.note(name, f"took {time.perf_counter() - start:.0f} s")
        free()

    def run(self, asked: str, parts: Mapping[str, Callable[..., object]], *given: Any) -> None:
        """The parts that are asked for, by names with commas between, and the table."""
        for name in asked.split(","):
            if self.has_time(name):
                with self.part(name):
                    parts[name](*given)
        if self._is_main:
            print(self.table())

    def row(self, part: str, what: str, **values: Any) -> None:
        """One measurement; most memory is that since `free`, unless it is given."""
        self.rows.append({"part": part, "what": what, "peak_gib": peak_gib()} | values)
        print(self.rows[-1], flush=True)
        self._write()

    def note(self, part: str, text: str) -> None:
        """What a row doesn't hold."""
        self.notes.append(f"{part}: {text}")
        print(self.notes[-1], flush=True)
        self._write()

    def table(self) -> str:
        """Everything as Markdown."""
        return "\n".join([*self._table(self.rows), "", *(f"- {note}" for note in self.notes)]) + "\n"

    def _write(self) -> None:
        if self._is_main:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            body = {"command": shlex.join(["python", *sys.argv]), "machine": self._machine, "matmul": self.matmul}
            body |= {"rows": self.rows, "notes": self.notes, "curves": self.curves}
            self._path.with_name(f"{self._path.name}.json").write_text(json.dumps(body, indent=1))
            self._path.with_name(f"{self._path.name}.md").write_text(self.table())


def columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A Markdown table of rows of cells by heading; the first two columns are words, the others numbers."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", f"|---|---|{'---:|' * (len(names) - 2)}"]
    return lines + [f"| {' | '.join(row.get(name, '') for name in names)} |" for row in rows]


def times_peer(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], field: str) -> float | None:
    """A row's figure over that of the peer in its part; None where there is no peer."""
    peers = [other[field] for other in rows if other["part"] == row["part"] and other.get("peer")]
    return row[field] / peers[0] if peers else None


def machine(device: str = "cuda") -> str:
    """The cards and the host, in words."""
    where = "CPU" if device == "cpu" else f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return f"{where}, {os.cpu_count()} cores, Python {platform.python_version()}"


def matmul_rate(device: str = "cuda") -> float:
    """Operations a second of square products (8192 in bfloat16 on a GPU): the median of ten runs of five."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (512, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    product = left @ right
    seconds = [timed(lambda: [torch.mm(left, right, out=product) for _ in range(5)])[0] / 5 for _ in range(12)]
    return 2 * size**3 / statistics.median(seconds[2:])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that work takes, with what it leaves to the cards, and its result."""
    wait_for_cards()
    start = time.perf_counter()
    result = work()
    wait_for_cards()
    return time.perf_counter() - start, result


def wait_for_cards() -> None:
    """Wait until the cards have done what they were given."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for card in range(torch.cuda.device_count()):
            torch.cuda.synchronize(card)


def profiled(work: Callable[[], Any], path: Path) -> None:
    """Write where the device's time goes while work is done."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        work()
    averages = found.key_averages()
    path.write_text(averages.table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=110))


def peak_gib() -> float:
    """Most memory that was held on one card since `free`."""
    cards = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return max((torch.cuda.max_memory_allocated(card) for card in cards), default=0) / 2**30


def free() -> None:
    """Give back what nothing holds any more, and begin to count memory anew."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        for card in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(card)


def random_model(
    shape: dict[str, Any], *, family: str = "llama", device: str = "cuda", dtype: Any = torch.bfloat16, **more: Any
) -> Any:
    """A model with random weights, the same for the same shape."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **(shape | more))
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def synthetic(count: int, vocabulary: int, *, mean: int, seed: int = 0) -> list[TrainingExample]:
    """Random ids with the lengths of instruction data: lognormal around the mean, 55% of it response."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(math.log(mean) - 0.08, 0.4, count), 24, 1000).astype(int)
    return [
        TrainingExample(
            source="synthetic",
            record_id=str(number),
            role="source",
            ids=random.integers(5, vocabulary, length).astype(np.int32),
            prompt_length=max(1, int(length * 0.45)),
        )
        for number, length in enumerate(lengths)
    ]


def reading_operations(model: Any, examples: Sequence[Any]) -> int:
    """Operations of reading encoded examples: every token, and the head at response positions."""
    head, embeddings = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    outside = embeddings.numel() + (0 if head is embeddings else head.numel())
    body = sum(parameter.numel() for parameter in model.parameters()) - outside
    tokens = sum(one.total_length for one in examples)
    return int(2 * (body * tokens + head.numel() * sum(len(one.response_ids) for one in examples)))


def training_operations(model: Any, examples: Sequence[TrainingExample]) -> float:
    """Operations a token of training frozen linear layers with factors, the head counted where there are labels.

    A frozen weight is multiplied twice (forward, and for the gradient of its input), a factor three times.
    """
    labelled = sum(e.response_length for e in examples) / sum(e.length for e in examples)
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    layers = sum(m.weight.numel() * (6.0 if m.weight.requires_grad else 4.0) for m in linear)
    return float(layers + 4.0 * head.weight.numel() * labelled)


# --- training


def own_steps(
    learner: Any,
    examples: Sequence[TrainingExample],
    config: Any,
    steps: int,
    *,
    planned: int | None = None,
    devices: Any = None,
) -> Iterator[tuple[int, torch.Tensor]]:
    """The first steps of our training as its loop takes them, of a schedule for so many; each gives tokens and loss."""
    from calibudget.training.example_order import plan_steps, rate_factor, share, warmup_steps

    plan = plan_steps(examples, config)[:steps]
    planned = planned or len(plan)
    warmup = warmup_steps(planned, config.warmup_fraction)
    lengths = [example.length for example in examples]
    for number, step in enumerate(plan):
        own = step.members if devices is None else share(step.members, lengths, devices.count)[devices.rank]
        responses = sum(examples[i].response_length for i in step.members)
        loss = learner.gradients(learner.batches(examples, own), responses)
        if devices is not None:
            devices.add_up([*(factor.gradient for factor in learner.factors), loss])
        factor = rate_factor(number, planned, warmup, config.schedule)
        learner.update(config.factor_rates(config.learning_rate * factor))
        yield sum(lengths[i] for i in step.members), loss


def named_gradients(model: Any) -> dict[str, torch.Tensor]:
    """Copies of the gradients of all that is trained, in float32."""
    return {name: p.grad.float().clone() for name, p in model.named_parameters() if p.requires_grad}


def lora_plus(model: Any, config: Any, **options: Any) -> Any:
    """peft's own optimizer for LoRA+, at our rates."""
    from peft.optimizers import create_loraplus_optimizer

    rate, _ = config.factor_rates(config.learning_rate)
    ratio = config.learning_rate_ratio
    optimizer = create_loraplus_optimizer(
        model, torch.optim.AdamW, lr=rate, loraplus_lr_ratio=ratio, loraplus_weight_decay=0.0, **options
    )
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
    return optimizer


def in_order(trainer: Any) -> Any:
    """A kind of transformers' trainers that takes its examples as they come."""
    from torch.utils.data import SequentialSampler

    class Ordered(trainer):  # type: ignore[misc]
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)

    return Ordered


def stamping(on_step: Callable[[], object], losses: list[float]) -> Any:
    """What tells of each step of a trainer and keeps the losses that it logs."""
    from transformers import TrainerCallback

    class Stamps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
            on_step()

        def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_kwargs: Any) -> None:
            if logs and "loss" in logs:
                losses.append(float(logs["loss"]))

    return Stamps()


def step_rates(tokens: Sequence[int], stamps: Sequence[float], warm: int) -> list[float]:
    """Tokens a second of each step between two stamps, those of the first steps left out."""
    pairs = zip(tokens[1:], stamps, stamps[1:], strict=False)
    rates = [count / (after - before) for count, before, after in pairs]
    return rates[warm - 1 :] or rates

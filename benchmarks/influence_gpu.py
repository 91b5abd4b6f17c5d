"""Single examples' gradients on a GPU: ours, a batch at a time, beside one backward pass an example; and CountSketch.

    python benchmarks/influence_gpu.py [--parts small,seven,sketch] [--model DIR_OR_GGUF] [--rank 16] [--output DIR]
    python benchmarks/influence_gpu.py --parts small,sketch --device cpu --tiny      (the same code on a tiny shape)

Parts: `small` takes SmolLM2 (`--model`; random weights of its shape without), `seven` random weights of the 7B shape,
`sketch` a vector of 1e8 values. The peer is LESS's way: peft in bfloat16, one example at a time, its gradients joined
to one vector, Adam's update formed of it; both sides get the same factors, second moment and sketch. Times are of whole
loops after a warm-up, in one process. Cosines are between the two sides' vectors for the same example, and of each side
with float32 arithmetic on the same rounded weights where that is made. Examples are random ids; with `--data` (the file
that influence_ab.py makes) those of `small` are real text. Prints one Markdown table and writes it with all numbers to
the output directory ($OUT, or benchmarks/results).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu
import numpy as np
import torch
from gpu import SEVEN, SMALL, Report, free, random_model, synthetic
from measuring import read_rows

from calibudget.influence.gradients import Direction, ExampleGradients, adam_direction
from calibudget.influence.scorer import Sketches, SketchTable
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_model, load_tokenizer
from calibudget.selection.count_sketch import CountSketch
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.example_order import rows
from calibudget.training.optimizer_step import Learner
from calibudget.training.target_layers import add_adapter

TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 2048}
STEPS = 8


@dataclass(frozen=True, kw_only=True)
class Given:
    """What both sides are given: the peer's parameters in its order, Adam's second moment, the sketch."""

    names: list[str]
    square: torch.Tensor
    config: TrainingConfig
    table: SketchTable
    batch_tokens: int


def table(rows: list[dict[str, Any]]) -> list[str]:
    return gpu.columns([{name: cell(value) for name, value in row.items()} for row in rows])


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if value and abs(value) < 1e-2 else f"{value:,.2f}"
    return "" if value is None else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    gpu.add_options(parser, parts="small,seven,sketch", seconds=55)
    parser.add_argument("--model", type=Path, help="SmolLM2: a directory of safetensors or a .gguf file")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dimension", type=int, default=8192)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--data", type=Path, help="rows of real text, as influence_ab.py makes them")
    parser.add_argument("--examples", type=int, help="how many ours takes, and a quarter of them the peer")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape and short vectors, to try the script out")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    report = Report("influence_gpu", arguments.output, table, device=device.type, seconds=arguments.seconds)
    report.run(arguments.parts, {"small": small, "seven": seven, "sketch": sketch}, arguments, report, device)


# --- gradients


def small(arguments: argparse.Namespace, report: Report, device: torch.device) -> None:
    """SmolLM2: both ways in bfloat16, and both held against float32."""
    shape = TINY if arguments.tiny else SMALL

    def model(dtype: torch.dtype) -> Any:
        if arguments.model is not None:
            return load_model(str(arguments.model), device=device.type, dtype=str(dtype).partition(".")[2]).model
        return random_model(shape, dtype=dtype, device=device.type)

    vocabulary = shape["vocab_size"]
    if arguments.data is not None:
        examples = real(arguments.data, str(arguments.model), arguments.examples or 256)
    else:
        examples = synthetic(arguments.examples or (16 if arguments.tiny else 256), vocabulary, mean=150)
    compare(
        "SmolLM2-135M",
        model,
        examples,
        len(examples) // 4 if arguments.examples else (8 if arguments.tiny else 32),
        arguments,
        report,
        device,
        ways=(True, False),
    )


def seven(arguments: argparse.Namespace, report: Report, device: torch.device) -> None:
    """The 7B shape with random weights."""
    shape = TINY if arguments.tiny else SEVEN
    examples = synthetic(arguments.examples or (16 if arguments.tiny else 96), shape["vocab_size"], mean=233)

    def model(dtype: torch.dtype) -> Any:
        return random_model(shape, dtype=dtype, device=device.type)

    compare(
        "7B shape",
        model,
        examples,
        len(examples) // 4 if arguments.examples else (8 if arguments.tiny else 16),
        arguments,
        report,
        device,
        ways=(True,),
    )


def compare(
    part: str,
    make: Callable[[torch.dtype], Any],
    examples: Sequence[TrainingExample],
    few: int,
    arguments: argparse.Namespace,
    report: Report,
    device: torch.device,
    *,
    ways: Sequence[bool],
) -> None:
    """Time and compare the peer with ours, packed or not; the peer sees the first `few` examples, ours all of them."""
    config = TrainingConfig(rank=arguments.rank, scaling=float(arguments.rank), max_length=1024)
    shared = list(examples[:few])
    peer = add_adapter(make(torch.bfloat16), config, "benchmark")
    started(peer)
    square = pretended_square(peer)
    cut_to_bfloat16(peer)
    table = SketchTable(CountSketch(dimension=arguments.dimension, seed=1), square.numel(), device)
    direction = adam_direction(square, config, STEPS)

    names = [name for name, parameter in peer.named_parameters() if parameter.requires_grad]
    given = Given(names=names, square=square, config=config, table=table, batch_tokens=arguments.batch_tokens)
    less_sketches(peer, names, shared[:2], direction, table)
    seconds, theirs = timed(lambda: less_gradients(peer, names, shared), device)
    row(report, part, "one backward an example: gradients", seconds, shared)
    peer_rate = len(shared) / seconds
    seconds, their_sketches = timed(lambda: less_sketches(peer, names, shared, direction, table), device)
    row(report, part, "one backward an example: Adam's update and sketch", seconds, shared)
    sketched_rate = len(shared) / seconds
    peer = None
    free()

    exact = None
    if len(ways) > 1:
        # the same rounded weights: what differs is the arithmetic
        reference = add_adapter(make(torch.bfloat16).float(), config, "benchmark")
        started(reference)
        exact = less_gradients(reference, names, shared)
        report.row(part, "one backward an example, with float32", **angles(theirs, exact))
        reference = None
        free()

    for pack in ways:
        learner = learner_of(make(torch.bfloat16), config, arguments, device, pack=pack)
        ours(
            learner, part, examples, shared, (theirs, exact, their_sketches), (peer_rate, sketched_rate), given, report
        )
        learner = None
        free()


def learner_of(
    model: Any, config: TrainingConfig, arguments: argparse.Namespace, device: torch.device, *, pack: bool
) -> Learner:
    execution = Execution(
        device="cuda" if device.type == "cuda" else "cpu",
        batch_tokens=max(arguments.batch_tokens, 1024),
        pack=pack,
        fuse=False,
        compile=False,
        graphs=False,
    )
    learner = Learner(model, "benchmark", config, execution)
    started(learner.model)
    return learner


class Nothing:
    """A sink that drops the gradients once they are formed."""

    def add(self, start: int, gradients: torch.Tensor) -> None:
        """See `Sink`."""


def ours(
    learner: Learner,
    part: str,
    examples: Sequence[TrainingExample],
    shared: Sequence[TrainingExample],
    theirs: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor],
    rates: tuple[float, float],
    given: Given,
    report: Report,
) -> None:
    """Compare the first examples' gradients and sketches with the peer's, and time all of them."""
    gradients = ExampleGradients(learner)
    device, tokens = gradients.device, given.batch_tokens
    way = "packed" if learner.packs_sequences else "rows of equal lengths"
    found = whole_gradients(gradients, shared, aligned(learner, given.names), max(1024, tokens // 4))
    report.row(part, f"{way}: gradients with the peer's", **angles(found, theirs[0]))
    if theirs[1] is not None:
        report.row(part, f"{way}: gradients with float32", **angles(found, theirs[1]))
    found = None
    free()
    direction = adam_direction(in_layout(given.square, learner, given.names), given.config, STEPS)
    table = copy(given.table)
    table.bins = in_layout(table.bins, learner, given.names)
    parts = [
        [examples[index] for index in members]
        for members in rows(range(len(examples)), [one.length for one in examples], tokens)
    ]
    weights = [weights_of(each, device) for each in parts]

    def alone() -> None:
        for each in parts:
            gradients(each, Nothing())

    def sketched() -> torch.Tensor:
        made = []
        for each, own in zip(parts, weights, strict=True):
            sink = Sketches(table, own, direction)
            gradients(each, sink)
            made.append(sink.finish())
        return torch.cat(made)

    gradients(parts[0], Sketches(table, weights[0], direction))
    for what, work, rate in (("gradients", alone, rates[0]), ("Adam's update and sketch", sketched, rates[1])):
        seconds, sketches = timed(work, device)
        speed = len(examples) / seconds / rate
        row(report, part, f"{way}: {what}", seconds, examples, **{"times the peer": speed})
    places = {id(example): place for place, example in enumerate(example for each in parts for example in each)}
    of_shared = sketches[[places[id(example)] for example in shared]]
    report.row(part, f"{way}: sketches with the peer's", **angles(of_shared, theirs[2]))


class Whole:
    """A sink that keeps every entry of E examples' gradients, shape (E, size), float32."""

    def __init__(self, count: int, size: int, device: torch.device) -> None:
        self.gradients = torch.zeros((count, size), device=device)

    def add(self, start: int, gradients: torch.Tensor) -> None:
        self.gradients[:, start : start + gradients.shape[1]] = gradients.float()


def whole_gradients(
    gradients: ExampleGradients, examples: Sequence[TrainingExample], order: list[slice], tokens: int
) -> torch.Tensor:
    """Every entry of the examples' gradients, in the peer's order."""
    found = torch.zeros((len(examples), sum(own.stop - own.start for own in order)), device=gradients.device)
    for members in rows(range(len(examples)), [one.length for one in examples], tokens):
        chosen = [examples[index] for index in members]
        whole = Whole(len(chosen), gradients.size, gradients.device)
        gradients(chosen, whole)
        found[members] = torch.cat([whole.gradients[:, own] for own in order], dim=1)
    return found


def row(report: Report, part: str, what: str, seconds: float, examples: Sequence[Any], **more: Any) -> None:
    tokens = sum(example.length for example in examples)
    measured = {"ms an example": 1e3 * seconds / len(examples), "tokens/s": tokens / seconds}
    report.row(part, what, **measured, **more)


def less_gradients(model: Any, names: list[str], examples: Sequence[TrainingExample]) -> torch.Tensor:
    """LESS's way: one example, one backward pass, all gradients joined; shape (E, entries), float32."""
    found = [one_gradient(model, names, example) for example in examples]
    return torch.stack(found)


def less_sketches(
    model: Any, names: list[str], examples: Sequence[TrainingExample], direction: Direction, table: SketchTable
) -> torch.Tensor:
    found = []
    one = torch.ones(1, device=model.device)
    for example in examples:
        sink = Sketches(table, one, direction)
        sink.add(0, one_gradient(model, names, example)[None])
        found.append(sink.finish())
    return torch.cat(found)


def one_gradient(model: Any, names: list[str], example: TrainingExample) -> torch.Tensor:
    ids = torch.from_numpy(example.ids.astype(np.int64))[None].to(model.device)
    labels = ids.clone()
    labels[:, : example.prompt_length] = -100
    model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
    named = dict(model.named_parameters())
    vector = torch.cat([named[name].grad.flatten() for name in names]).float()
    model.zero_grad()
    return vector


def started(model: Any) -> None:
    """B away from zero, the same bits for every copy, as after some training."""
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            start = torch.randn(parameter.shape, generator=generator) * 0.01
            parameter.data.copy_(start.bfloat16().float())
        elif ".lora_A." in name:
            parameter.data.copy_(parameter.data.bfloat16().float())


def cut_to_bfloat16(model: Any) -> None:
    """The factors in the model's own precision, as LESS trains them; peft turns inputs to float32 otherwise."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()


def pretended_square(model: Any) -> torch.Tensor:
    """A second moment of the size that gradients have, without a training run; both sides use the same."""
    size = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    generator = torch.Generator(model.device).manual_seed(5)
    draw = torch.randn(size, generator=generator, device=model.device)
    return (draw * 1e-3).square() * (1 - 0.999**STEPS)


def aligned(learner: Learner, names: list[str]) -> list[slice]:
    """Where the entries of the peer's parameters, in their order, lie among the learner's positions."""
    own = dict(learner.model.named_parameters())
    first, second = learner.factors
    starts = {**first.offsets, **{name: first.values.numel() + at for name, at in second.offsets.items()}}
    return [slice(starts[name], starts[name] + own[name].numel()) for name in names]


def in_layout(values: torch.Tensor, learner: Learner, names: list[str]) -> torch.Tensor:
    """One value an entry of the peer's parameters, in the learner's layout."""
    size = sum(factor.values.numel() for factor in learner.factors)
    moved, at = torch.zeros(size, dtype=values.dtype, device=values.device), 0
    for own in aligned(learner, names):
        count = own.stop - own.start
        moved[own] = values[at : at + count]
        at += count
    return moved


def weights_of(examples: Sequence[TrainingExample], device: torch.device) -> torch.Tensor:
    return torch.tensor([1.0 / example.response_length for example in examples], device=device)


def angles(ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, float]:
    """1 - cosine over examples: the median and the worst."""
    cosines = [
        float(torch.dot(a.double(), b.double()) / (a.double().norm() * b.double().norm()))
        for a, b in zip(ours, theirs, strict=True)
    ]
    return {"1 - cosine, median": 1.0 - statistics.median(cosines), "worst": 1.0 - min(cosines)}


# --- CountSketch


def sketch(arguments: argparse.Namespace, report: Report, device: torch.device) -> None:
    """A vector of 1e8 values: ours on the device and in numpy, a scatter-add, a dense random projection."""
    size = 10**6 if arguments.tiny else 10**8
    dimension = arguments.dimension
    part = f"CountSketch, {size:,} values to {dimension:,}"
    generator = torch.Generator(device).manual_seed(1)
    vector = torch.randn(size, generator=generator, device=device)
    count_sketch = CountSketch(dimension=dimension, seed=1)
    seconds, table = timed(lambda: SketchTable(count_sketch, size, device), device)
    report.row(part, "ours: hashing all positions, once for all vectors", seconds=seconds)

    def ours(vectors: torch.Tensor) -> torch.Tensor:
        sink = Sketches(table, torch.ones(len(vectors), device=device))
        sink.add(0, vectors)
        return sink.finish()

    ours(vector[None])
    seconds, found = timed(lambda: ours(vector[None]), device)
    report.row(part, f"ours on {device.type}, one vector", seconds=seconds)
    eight = vector.expand(8, size) if arguments.tiny else vector[: size // 8].view(1, -1).expand(8, -1).contiguous()
    seconds, _ = timed(lambda: ours(eight), device)
    report.row(part, f"ours on {device.type}, eight vectors of an eighth the length together", seconds=seconds)

    on_host, host_bins = vector.cpu().numpy(), table.bins.cpu().numpy()
    begun = time.perf_counter()
    sums = np.zeros(2 * dimension)
    np.add.at(sums, host_bins, on_host)
    report.row(part, "numpy scatter-add (np.add.at), bins given", seconds=time.perf_counter() - begun)
    expected = sums[0::2] - sums[1::2]
    error = np.linalg.norm(found[0].cpu().numpy() - expected) / np.linalg.norm(expected)
    report.note("sketch", f"relative difference between the device's float32 sums and float64 sums: {error:.1e}")

    tenth = size // 10
    seconds, _ = timed(lambda: dense(vector[:tenth], dimension), device)
    report.row(part, f"dense random signs on {device.type}, a tenth of the values times ten", seconds=10 * seconds)


def dense(vector: torch.Tensor, dimension: int) -> torch.Tensor:
    """A projection by independent random signs, made as they are needed."""
    kind = torch.bfloat16 if vector.is_cuda else torch.float32
    total = torch.zeros(dimension, device=vector.device)
    step = max(1, (1 << 29 if vector.is_cuda else 1 << 24) // dimension)
    for start in range(0, len(vector), step):
        part = vector[start : start + step].to(kind)
        signs = (
            torch.randint(0, 2, (dimension, len(part)), device=vector.device, dtype=torch.int8).to(kind).mul_(2).sub_(1)
        )
        total += (signs @ part).float()
    return total / math.sqrt(dimension)


# --- data, models, time


def real(path: Path, model: str, count: int) -> list[TrainingExample]:
    """Every so many rows of real text, encoded."""
    chosen = [row for row in read_rows(path) if row["split"] == "pool"]
    encoder = Encoder("alpaca", load_tokenizer(model))
    return list(encode_examples(chosen[:: len(chosen) // count][:count], encoder, max_length=512, too_long="cut"))


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    return gpu.timed(work)


if __name__ == "__main__":
    main()

"""Scoring with one model over several cards, and with a quantised one, beside accelerate's padded passes.

    python benchmarks/scoring_gpu.py --prepare build/scoring-gpu     (once, anywhere; needs CALIBUDGET_DATA, no GPU)
    python benchmarks/sharded_gpu.py --data build/scoring-gpu [--parts large,equal,replicas,...] [--shape 34|70]
    python benchmarks/sharded_gpu.py --data build/scoring-gpu --device cpu --records 2 --runs 1     (a rehearsal)

Parts: `large` times a 34B (or 70B) shape of random bfloat16 weights, split evenly over all cards that are visible, on
800 records of which 35 % agree with their reference, with each batch in pieces that follow one another from card to
card and as one piece; and the peer: the same model under accelerate's hooks as `device_map="auto"` gives it, one padded
pass for the likelihood, one for `generate`. `equal` reads the 7B shape on one card and split over all, in float32 and
in bfloat16, and tells how far NLLs differ. `replicas` times worker processes that load the 7B shape: one, one a card,
and one whose model lies on all cards. `influence` takes single examples' gradients on one card and over all. `training`
times LoRA on one card and on all (training_gpu.py, `scaling`). `quantised` times the 7B shape in 4 bit (NF4) and in
bfloat16, where bitsandbytes is installed. The limit is that of scoring_gpu.py, for all cards together. With one card
nothing is split, and `large` compares on that card.

Of several parts each runs in a process of its own and writes its own JSON file; what can't be done in the time that
is left is left out. A rehearsal takes two parts of a CPU for cards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from gpu import SEVEN, Report, add_options, free, random_model, timed
from measuring import ROOT
from scoring_gpu import (
    NEW_TOKENS,
    PEER_BATCH,
    TINY,
    TOKENS,
    agreeing_scorer,
    both_passes,
    counting_decoded,
    largest,
    limit_of,
    load_items,
    read_only,
    repeated,
    report_on,
    scorer_of,
    tokenizer_of,
)

LARGE = {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096}
SHAPES = {
    "34": LARGE | {"intermediate_size": 22016, "num_hidden_layers": 48},  # Code Llama 34B but for its vocabulary
    "70": LARGE | {"intermediate_size": 28672, "num_hidden_layers": 80},  # Llama 2 70B likewise
}
#: Seconds without which a part isn't begun.
LEAST = {"large": 60, "equal": 40, "replicas": 60, "influence": 30, "training": 60, "quantised": 60}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "scoring-gpu")
    add_options(parser, parts="large,equal,replicas,influence,training,quantised")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="34")
    parser.add_argument("--records", type=int, help="records a source, for a rehearsal")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-share", type=float, default=0.08, help="share of the records that the peer is timed on")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    if "," in arguments.parts:
        run_apart(arguments)
        return
    report = report_on(arguments, f"sharded_gpu-{arguments.parts}")
    cards = card_count(arguments)
    report.note("machine", f"{cards} card(s); the limit is that of all together")
    report.matmul *= cards
    if arguments.device == "cpu":
        from calibudget.lm import forward

        forward.cards_of = lambda model: len(set(getattr(model, "rehearsed", ()))) or 1
    parts = {"large": large, "equal": equal, "replicas": replicas, "influence": influence, "training": training}
    report.run(arguments.parts, parts | {"quantised": quantised}, arguments, report)


def run_apart(arguments: argparse.Namespace) -> None:
    """Each part in a process of its own, as long as there is time: a card that fails in one doesn't fail the next."""
    end = time.perf_counter() + arguments.seconds
    for part in arguments.parts.split(","):
        left = end - time.perf_counter()
        if left < LEAST[part]:
            print(f"{part}: left out, {left:.0f} s are left", flush=True)
            continue
        command = [sys.executable, *sys.argv, "--parts", part, "--seconds", f"{left:.0f}"]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            print(f"{part}: exit code {process.wait(timeout=left)}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{part}: stopped after {left:.0f} s", flush=True)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def card_count(arguments: argparse.Namespace) -> int:
    import torch

    return torch.cuda.device_count() if arguments.device == "cuda" else 2


def spread_model(arguments: argparse.Namespace, shape: dict[str, Any], dtype: Any, cards: int) -> Any:
    """A Llama of random weights whose layers lie in equal runs on so many cards; the weights don't depend on that."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from calibudget.lm.placement import hand_on

    config = AutoConfig.for_model("llama", **(shape | TOKENS))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    devices: list[Any] = list(range(cards)) if arguments.device == "cuda" else ["cpu", "cpu:0"][:cards]
    layers = config.num_hidden_layers
    placed = {"model.embed_tokens": devices[0], "model.rotary_emb": devices[0]}
    placed |= {f"model.layers.{layer}": devices[layer * len(devices) // layers] for layer in range(layers)}
    placed |= {"model.norm": devices[-1], "lm_head": devices[-1]}
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    for name, device in placed.items():
        module = model.get_submodule(name)
        module.to(device) if name == "model.rotary_emb" else module.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator(parameter.device).manual_seed(zlib.crc32(name.encode()))
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)
    if cards > 1:
        hand_on(model, placed)
        if arguments.device == "cpu":
            model.rehearsed = devices
    return model


class Utilisation:
    """The share of time that kernels were running on each card while the block ran, as the driver samples it."""

    def __init__(self) -> None:
        self.samples: list[list[int]] = []
        self._ends = threading.Event()

    def __enter__(self) -> Utilisation:
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _sample(self) -> None:
        import torch

        if not torch.cuda.is_available():
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            cards = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            while not self._ends.wait(0.05):
                self.samples.append([pynvml.nvmlDeviceGetUtilizationRates(card).gpu for card in cards])
        except Exception as error:
            print(f"utilisation isn't known: {type(error).__name__}: {error}", flush=True)

    def __str__(self) -> str:
        means = [f"{mean(card):.0f}%" for card in zip(*self.samples, strict=True)]
        return f"cards busy {' and '.join(means) or 'not known'}"


def peaks(cards: int) -> str:
    import torch

    if not torch.cuda.is_available():
        return "none"
    return ", ".join(f"{torch.cuda.max_memory_allocated(card) / 2**30:.1f} GiB" for card in range(cards))


@contextmanager
def in_one_piece() -> Iterator[None]:
    """While the block runs each batch goes through the cards as a whole."""
    from calibudget.lm import forward

    keep, forward.cards_of = forward.cards_of, lambda _: 1
    try:
        yield
    finally:
        forward.cards_of = keep


def timed_scoring(
    arguments: argparse.Namespace,
    report: Report,
    part: str,
    name: str,
    model: Any,
    limit: float | None = None,
    **more: Any,
) -> tuple[float, list[Any]]:
    """Time our scoring of all records, 35 % of them settled by their forward; the limit is the model's unless given."""
    from calibudget.lm.placement import parts_of
    from calibudget.scoring.batches import measure_all

    tokenizer, items = tokenizer_of(arguments), load_items(arguments)
    scorer = scorer_of(model, tokenizer, None, kind=agreeing_scorer(), max_new_tokens=NEW_TOKENS)
    works = scorer._encode(items)
    names = [item.record.record_id for item in items]
    scorer.agreeing = frozenset(random.Random(1).sample(names, round(0.35 * len(names))))
    measure_all(scorer, items[: 8 * PEER_BATCH])
    free()
    with counting_decoded() as decoded, Utilisation() as busy:
        seconds, found = repeated(arguments.runs, lambda: measure_all(scorer, items))
    count = sum(decoded) // arguments.runs
    limit = limit or limit_of(report, model, works)
    report.row(part, name, seconds=median(seconds), limit=limit, runs=seconds, decoded=count, **more)
    batches = scorer.batches(items)
    report.note(
        part,
        f"{name}: packed {scorer._packs}, {len(batches)} batches of at most {scorer.describe()['batch_tokens']:,} "
        f"tokens, halved {max(one.batch_splits for one in found)} times, peak {peaks(card_count(arguments))}; {busy}",
    )

    def read(what: str) -> None:
        with Utilisation() as busy:
            reading, _ = repeated(arguments.runs, lambda: [read_only(scorer, works, batch) for batch in batches])
        report.row(part, f"{name}, {what}", seconds=median(reading), limit=limit, runs=reading)
        report.note(part, f"{name}, {what}: {busy}")

    read("likelihood alone")
    if parts_of(model) is not None:
        with in_one_piece():
            read("likelihood alone, each batch in one piece")
    return limit, works


def large(arguments: argparse.Namespace, report: Report) -> None:
    """The large shape over all cards, and accelerate's padded passes on the same."""
    import torch
    from accelerate import dispatch_model

    on_cpu = arguments.device == "cpu"
    dtype = torch.float32 if on_cpu else torch.bfloat16
    model = spread_model(arguments, TINY if on_cpu else SHAPES[arguments.shape], dtype, card_count(arguments))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report.note("large", f"{parameters / 1e9:.1f} billion parameters over {card_count(arguments)} card(s)")
    _, works = timed_scoring(arguments, report, "large", f"ours, {arguments.shape}B, 35% agree", model)
    placed = getattr(model, "hf_device_map", None)
    if placed is not None:  # the same weights as the peer's loader would have left them
        for module in model.modules():
            module._forward_pre_hooks.clear()
            module._forward_hooks.clear()
        model = dispatch_model(model, dict.fromkeys(placed, "cpu") if on_cpu else placed, force_hooks=True)
    shuffled = works[:]
    random.Random(0).shuffle(shuffled)
    for size, is_peer in ((PEER_BATCH, True), (4 * PEER_BATCH, False)):
        name = f"accelerate, padded batches of {size}"
        with Utilisation() as busy:
            both_passes(report, "large", name, model, shuffled, size, arguments.peer_share, peer=is_peer)
        report.note("large", f"{name}: {busy}")


def equal(arguments: argparse.Namespace, report: Report) -> None:
    """NLLs of the 7B shape on one card against those of the same weights over all cards."""
    import torch

    tokenizer, items = tokenizer_of(arguments), load_items(arguments)[::16]
    cards = card_count(arguments)
    for dtype in (torch.float32, torch.bfloat16):
        found = []
        for count in (1, cards):
            model = spread_model(arguments, SEVEN if arguments.device == "cuda" else TINY, dtype, count)
            scorer = scorer_of(model, tokenizer, 8192, max_new_tokens=NEW_TOKENS)
            found.append(scorer.measure(items))
            report.note("equal", f"{dtype}, {count} card(s): packed {scorer._packs}, peak {peaks(cards)}")
            del model, scorer
            free()
        nlls = [[one.nll for one in side] for side in found]
        texts = sum(one.text == other.text for one, other in zip(*found, strict=True))
        report.note(
            "equal",
            f"{dtype}, {len(items)} records, one card against {cards}: NLLs differ by {largest(*nlls):.1e} at most, "
            f"{texts} texts equal",
        )


def replicas(arguments: argparse.Namespace, report: Report) -> None:
    """Worker processes with the 7B shape: one, one a card, and one over all cards; their models are loaded before."""
    from calibudget.scoring.scorer import ScorerSettings
    from calibudget.scoring.settings import ScorerPool

    on_cpu, cards = arguments.device == "cpu", card_count(arguments)
    items = load_items(arguments, 400)[::4]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        limit = written_model(arguments, report, folder, items)
        free()
        settings = {"model": folder, "device": arguments.device, "batch_tokens": 8192, "max_new_tokens": NEW_TOKENS}
        shapes = {"1 worker, 1 card": (1, 1), f"{cards} workers, 1 card each": (cards, 1)}
        if not on_cpu:
            shapes[f"1 worker, {cards} cards"] = (1, cards)
        pools = {
            name: stack.enter_context(ScorerPool(ScorerSettings(**settings, gpus=gpus), workers=workers))
            for name, (workers, gpus) in shapes.items()
        }
        begun = time.perf_counter()
        for name, pool in pools.items():  # all begin to load before any is waited for
            for _ in range(shapes[name][0]):
                pool.submit(None)
        first = next(iter(pools.values()))
        batches = {n: [items[i] for i in batch] for n, batch in enumerate(first.batches(items))}
        for name, pool in pools.items():
            dict(pool.measure_batches({n: batches[n] for n in range(min(2 * shapes[name][0], len(batches)))}))
            report.note("replicas", f"{name}: {pool.describe()['model'].get('parts', 'whole')}")  # type: ignore[attr-defined]
        report.note("replicas", f"loaded in {time.perf_counter() - begun:.0f} s")
        report.note("replicas", f"{len(items)} records in {len(batches)} batches")
        measured: dict[str, list[Any]] = {}
        found: dict[str, list[float]] = {name: [] for name in pools}
        for _ in range(arguments.runs):
            for name, pool in pools.items():
                with Utilisation() as busy:
                    one, result = timed(lambda pool=pool: dict(pool.measure_batches(batches)))
                found[name].append(one)
                measured[name] = [one for n in sorted(result) for one in result[n]]
                report.note("replicas", f"{name}: {one:.2f} s; {busy}")
        (base, own), *others = measured.items()
        medians = {name: median(seconds) for name, seconds in found.items()}
        for name, seconds in found.items():
            own_limit = limit * cards / (shapes[name][0] * shapes[name][1])
            report.row("replicas", name, seconds=medians[name], limit=own_limit, runs=seconds)
            report.note("replicas", f"{name}: {medians[base] / medians[name]:.2f} times the speed of {base}")
        for name, other in others:
            off = largest([one.nll for one in own], [one.nll for one in other])
            texts = sum(one.text == two.text for one, two in zip(own, other, strict=True))
            report.note(
                "replicas", f"{name} against {base}: NLLs differ by {off:.1e}, {texts} of {len(own)} texts equal"
            )


def written_model(arguments: argparse.Namespace, report: Report, folder: str, items: list[Any]) -> float:
    """Write the 7B shape with a tokenizer to a folder; the limit for reading the items with it."""
    import torch

    shape, dtype = (TINY, torch.float32) if arguments.device == "cpu" else (SEVEN, torch.bfloat16)
    model = random_model(shape | TOKENS, device=arguments.device, dtype=dtype)
    seconds, _ = timed(lambda: model.save_pretrained(folder))
    report.note("replicas", f"written in {seconds:.0f} s")
    tokenizer = tokenizer_of(arguments)
    tokenizer.save_pretrained(folder)
    return limit_of(report, model, scorer_of(model, tokenizer, 8192)._encode(items))


def influence(arguments: argparse.Namespace, report: Report) -> None:
    """Single examples' gradients of the 7B shape's factors, on one card and over all."""
    import torch
    from influence_gpu import Nothing, aligned, angles, learner_of, started, synthetic, whole_gradients

    from calibudget.influence.gradients import ExampleGradients
    from calibudget.training.config import TrainingConfig
    from calibudget.training.example_order import packs

    on_cpu, cards = arguments.device == "cpu", card_count(arguments)
    config = TrainingConfig(rank=4, scaling=4.0, max_length=1024)
    device, settings = torch.device(arguments.device), argparse.Namespace(batch_tokens=8192)
    examples = synthetic(12 if on_cpu else 96, 49152, mean=60 if on_cpu else 233)
    shared, vectors = examples[:8], []
    for count in (1, cards):
        model = spread_model(arguments, TINY if on_cpu else SEVEN, torch.float32 if on_cpu else torch.bfloat16, count)
        learner = learner_of(model, config, settings, device, pack=True)
        started(learner.model)
        gradients = ExampleGradients(learner)
        names = [name for name, parameter in learner.model.named_parameters() if parameter.requires_grad]
        vectors.append(whole_gradients(gradients, shared, aligned(learner, names), 1024).cpu())
        lengths = [example.length for example in examples]
        groups = [[examples[i] for i in members] for members in packs(range(len(examples)), lengths, 8192)]
        seconds, _ = repeated(arguments.runs, partial(for_all, partial(gradients, sink=Nothing()), groups))
        report.note(
            "influence",
            f"{count} card(s): {1e3 * median(seconds) / len(examples):.1f} ms an example, {len(examples)} "
            f"examples, packed {learner.packs_sequences}, peak {peaks(cards)}",
        )
        del model, learner, gradients
        free()
    report.note(
        "influence", f"gradients over {cards} cards with those on one: {json.dumps(angles(vectors[1], vectors[0]))}"
    )


def for_all(work: Callable[[Any], object], values: list[Any]) -> None:
    for value in values:
        work(value)


def training(arguments: argparse.Namespace, report: Report) -> None:
    """LoRA at the 7B shape on one card and on all, by training_gpu.py."""
    if arguments.device == "cpu":
        report.note("training", "needs a GPU: not measured")
        return
    script = [str(ROOT / "benchmarks" / "training_gpu.py"), "--parts", "scaling", "--timed", "8"]
    end = time.perf_counter() + arguments.seconds
    speeds = {}
    for cards in (card_count(arguments), 1):
        start = [sys.executable] if cards == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        start += [] if cards == 1 else ["--nproc-per-node", str(cards)]
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(cards)))}
            command = [*start, *script, "--output", folder]
            left = max(end - time.perf_counter(), 1)
            done = subprocess.run(command, env=environment, timeout=left, capture_output=True, text=True)
            if done.returncode:
                report.note("training", f"{cards} card(s): exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
                continue
            for file in Path(folder).glob("training_gpu*.json"):
                told = json.loads(file.read_text())
                speeds[cards] = told["rows"][0]["tokens_per_second"]
                report.note("training", f"{cards} card(s): {json.dumps(told)}")
    if len(speeds) > 1:
        most = max(speeds)
        report.note("training", f"{most} cards: {speeds[most] / speeds[1]:.3f} times the tokens a second of one")


def quantised(arguments: argparse.Namespace, report: Report) -> None:
    """The 7B shape in 4 bit beside bfloat16, on one card."""
    import torch

    try:
        import bitsandbytes
    except ImportError:
        report.note("quantised", "bitsandbytes isn't installed: not measured")
        return
    on_cpu = arguments.device == "cpu"
    model = spread_model(arguments, TINY if on_cpu else SEVEN, torch.float32 if on_cpu else torch.bfloat16, 1)
    limit, _ = timed_scoring(arguments, report, "quantised", "ours, 7B, bfloat16", model, peer=True)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parent, _, own = name.rpartition(".")
            layer = bitsandbytes.nn.Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=module.weight.dtype, quant_type="nf4"
            )
            layer.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
            setattr(model.get_submodule(parent), own, layer.to(arguments.device))
    free()
    # packed weights count for fewer, and the multiply-adds are those of the model in bfloat16
    name = f"ours, 7B, 4 bit (bitsandbytes {bitsandbytes.__version__})"
    timed_scoring(arguments, report, "quantised", name, model, limit)


if __name__ == "__main__":
    main()

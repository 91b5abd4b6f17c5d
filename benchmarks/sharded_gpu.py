"""Scoring with one model over several cards, and with a quantised one, beside accelerate's padded passes.

    python benchmarks/scoring_gpu.py --prepare build/scoring-gpu     (once, anywhere; needs CALIBUDGET_DATA, no GPU)
    python benchmarks/sharded_gpu.py --data build/scoring-gpu [--parts equal,large,quantised] [--shape 34|70]
    python benchmarks/sharded_gpu.py --data build/scoring-gpu --device cpu --records 2 --runs 1     (a rehearsal)

Parts: `equal` reads the 7B shape on one card and split over all of them, in float32 and in bfloat16, and tells how far
NLLs differ; `large` times a 34B (or 70B) shape of random bfloat16 weights, split evenly over all cards that are
visible, on 800 records of which 35 % agree with their reference, and the peer: the same model under accelerate's hooks
as `device_map="auto"` gives it, one padded pass for the likelihood, one for `generate`; `quantised` times the 7B shape
in 4 bit (NF4) and in bfloat16, where bitsandbytes is installed. The limit is that of scoring_gpu.py, for all cards
together. With one card nothing is split, and `large` compares on that card.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import zlib
from pathlib import Path
from typing import Any

from scoring_gpu import (
    NEW_TOKENS,
    PEER_BATCH,
    ROOT,
    SEVEN,
    TINY,
    Report,
    agreeing_scorer,
    both_passes,
    counting_decoded,
    free,
    largest,
    limit_of,
    load_items,
    measure_parts,
    repeated,
    scorer_of,
    tokenizer_of,
)

LARGE = {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096}
SHAPES = {
    "34": LARGE | {"intermediate_size": 22016, "num_hidden_layers": 48},  # Code Llama 34B but for its vocabulary
    "70": LARGE | {"intermediate_size": 28672, "num_hidden_layers": 80},  # Llama 2 70B likewise
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "scoring-gpu")
    parser.add_argument("--parts", default="equal,large,quantised")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="34")
    parser.add_argument("--records", type=int, help="records a source, for a rehearsal")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-share", type=float, default=0.1, help="share of the records that the peer is timed on")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ROOT / "benchmarks" / "results")))
    arguments = parser.parse_args()
    report = Report(arguments, "sharded_gpu")
    cards = card_count(arguments)
    report.note("machine", f"{cards} card(s); the limit is that of all together")
    report.matmul *= cards
    parts = {"equal": equal, "large": large, "quantised": quantised}
    measure_parts(arguments, report, parts)


def card_count(arguments: argparse.Namespace) -> int:
    import torch

    return torch.cuda.device_count() if arguments.device == "cuda" else 1


def spread_model(arguments: argparse.Namespace, shape: dict[str, Any], dtype: Any, cards: int) -> Any:
    """A Llama of random weights whose layers lie in equal runs on so many cards; the weights don't depend on that."""
    import torch
    from accelerate import dispatch_model
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {"vocab_size": 49152, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    config = AutoConfig.for_model("llama", **settings, **shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    devices: list[Any] = list(range(cards)) if arguments.device == "cuda" else ["cpu"]
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
    return dispatch_model(model, placed) if len(devices) > 1 else model


def equal(arguments: argparse.Namespace, report: Report) -> None:
    """NLLs of the 7B shape on one card against those of the same weights over all cards."""
    import torch

    tokenizer, items = tokenizer_of(arguments), load_items(arguments)[::8]
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


def peaks(cards: int) -> str:
    import torch

    if not torch.cuda.is_available():
        return "none"
    return ", ".join(f"{torch.cuda.max_memory_allocated(card) / 2**30:.1f} GiB" for card in range(cards))


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
    from calibudget.scoring.measure import measure_all

    tokenizer, items = tokenizer_of(arguments), load_items(arguments)
    scorer = scorer_of(model, tokenizer, None, kind=agreeing_scorer(), max_new_tokens=NEW_TOKENS)
    works = scorer._encode(items)
    names = [item.record.record_id for item in items]
    scorer.agreeing = frozenset(random.Random(1).sample(names, round(0.35 * len(names))))
    measure_all(scorer, items[: 8 * PEER_BATCH])
    free()
    with counting_decoded() as decoded:
        seconds, found = repeated(arguments.runs, lambda: measure_all(scorer, items))
    count = sum(decoded) // arguments.runs
    limit = limit or limit_of(report, model, works)
    report.row(part, name, statistics.median(seconds), limit, runs=seconds, decoded=count, **more)
    report.note(
        part,
        f"{name}: packed {scorer._packs}, batches of at most {scorer.describe()['batch_tokens']:,} tokens, halved "
        f"{max(one.batch_splits for one in found)} times, peak {peaks(card_count(arguments))}",
    )
    batches = scorer.batches(items)
    reading, _ = repeated(arguments.runs, lambda: [read_only(scorer, works, batch) for batch in batches])
    report.row(part, f"{name}, likelihood alone", statistics.median(reading), limit, runs=reading)
    return limit, works


def read_only(scorer: Any, works: list[Any], batch: tuple[int, ...]) -> Any:
    from calibudget.lm.forward import teacher_forced

    return teacher_forced(scorer._model, [works[i].example for i in batch], keep=False)[0]


def large(arguments: argparse.Namespace, report: Report) -> None:
    """The large shape over all cards, and accelerate's padded passes on the same."""
    import torch

    on_cpu = arguments.device == "cpu"
    dtype = torch.float32 if on_cpu else torch.bfloat16
    model = spread_model(arguments, TINY if on_cpu else SHAPES[arguments.shape], dtype, card_count(arguments))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report.note("large", f"{parameters / 1e9:.1f} billion parameters over {card_count(arguments)} card(s)")
    _, works = timed_scoring(arguments, report, "large", f"ours, {arguments.shape}B, 35% agree", model)
    shuffled = works[:]
    random.Random(0).shuffle(shuffled)
    for size, is_peer in ((PEER_BATCH, True), (4 * PEER_BATCH, False)):
        name = f"accelerate, padded batches of {size}"
        both_passes(report, "large", name, model, shuffled, size, arguments.peer_share, peer=is_peer)


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

"""Scoring on GPUs: the NLL and the greedy answer of 800 real calibration records, beside two padded passes.

    python benchmarks/scoring_gpu.py --prepare build/scoring-gpu      (once, anywhere; needs CALIBUDGET_DATA, no GPU)
    python benchmarks/scoring_gpu.py --data build/scoring-gpu [--parts check,seven,small] [--model DIR_OR_GGUF]
    python benchmarks/scoring_gpu.py --data build/scoring-gpu --device cpu --records 2 --runs 1    (a rehearsal)

Parts: `check` holds packed readings and captured decoding against plain transformers on small random models of several
families; `seven` times the LLaMA-2-7B shape with random weights where 0, 35 and 90 % of the records agree with their
reference (an agreeing one needs no decoding; no answer ends early here, so it is the worst case), and the peer: one
padded pass for the likelihood and one for `generate`, in transformers as people write it, on a share of the records;
`small` is SmolLM2 with its own weights (`--model`): time, answers in float32 against one-by-one `generate`, and how
many parsed answers differ in bfloat16, beside the padded baseline's own differences from run to run and between two
batch sizes. Worker processes, one a GPU, are timed by sharded_gpu.py (`replicas`).

The limit is the time that the multiply-adds of all tokens of prompts and responses take at the matmul rate measured in
the same run, with logits at response positions only and no decoding. Prints one Markdown table and writes it with all
numbers to the output directory, as JSON. A GPU machine needs torch and transformers, and of this package's own
dependencies pyarrow, filelock and rfc8785 (and gguf for a .gguf file). `--device cpu` makes every model tiny.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import gpu
from gpu import SEVEN, Report, free, random_model, reading_operations, timed
from measuring import ROOT, SOURCES, calibration_items, read_rows

os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))

#: The vocabulary of the tokenizer at hand.
TOKENS = {"vocab_size": 49152, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
TINY = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
TINY |= {"max_position_embeddings": 4096}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 64},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 48},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 64, "sliding_window": 48},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 64, "sliding_window": 48},
    "phi3": {"num_key_value_heads": 2},
}
NEW_TOKENS = 32
PEER_BATCH = 16
#: Batch sizes of the padded passes whose answers are compared, and the runs of each.
LARGE_BATCHES = {"float32": ((200, 1),), "bfloat16": ((100, 1), (100, 2), (200, 1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prepare", type=Path, metavar="OUT", help="write the records and the tokenizer, and stop")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "scoring-gpu", help="what --prepare wrote")
    gpu.add_options(parser, parts="check,seven,small")
    parser.add_argument("--model", help="SmolLM2: a directory or a .gguf file")
    parser.add_argument("--records", type=int, help="records a source, for a rehearsal")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of ours, of which the median counts")
    parser.add_argument("--peer-share", type=float, default=0.2, help="share of the records that the peer is timed on")
    parser.add_argument("--batch-tokens", type=int, help="of the 7B shape; without it, what the scorer takes by itself")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--profile", action="store_true", help="write where the device's time goes at the 7B shape")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare)
        return
    parts = {"check": check, "seven": seven, "small": small}
    report = report_on(arguments, "scoring_gpu")
    report.run(arguments.parts, parts, arguments, report)


def report_on(arguments: argparse.Namespace, name: str) -> Report:
    packages = ("torch", "transformers", "accelerate", "peft")
    return Report(name, arguments.output, table, device=arguments.device, packages=packages, seconds=arguments.seconds)


def table(rows: list[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        ratio = gpu.times_peer(row, rows, "seconds")
        own = {"runs": str(len(row.get("runs", "1"))), "seconds": f"{row['seconds']:.2f}"}
        own |= {
            "peer / this": f"{1 / ratio:.1f}" if ratio else "",
            "this / limit": f"{row['seconds'] / row['limit']:.2f}",
        }
        own |= {"decoded": str(row.get("decoded", "")), "GiB": f"{row['peak_gib']:.1f}"}
        cells.append({"part": row["part"], "what": row["what"]} | own)
    return gpu.columns(cells)


def repeated(runs: int, work: Callable[[], Any]) -> tuple[list[float], Any]:
    """The seconds of each run and the last result."""
    results = [timed(work) for _ in range(runs)]
    return [seconds for seconds, _ in results], results[-1][1]


# --- data and models


def prepare(directory: Path) -> None:
    """The calibration records of the eight commonsense sources (100 and 400 each, seed 42) and SmolLM2's tokenizer."""
    from calibudget.lm.loading import load_tokenizer
    from calibudget.scoring.scorer import item_to_json

    directory.mkdir(parents=True, exist_ok=True)
    for size, items in calibration_items(100, 400).items():
        lines = [json.dumps(item_to_json(item)) + "\n" for item in items]
        (directory / f"items-{size}.jsonl").write_text("".join(lines))
    load_tokenizer("embedded").save_pretrained(directory / "tokenizer")
    print(f"records and tokenizer: {directory}")


def load_items(arguments: argparse.Namespace, size: int = 100) -> list[Any]:
    from calibudget.scoring.scorer import item_from_json

    items = [item_from_json(row) for row in read_rows(arguments.data / f"items-{size}.jsonl")]
    if arguments.records is None:
        return items
    return [one for n in range(len(SOURCES)) for one in items[n * size : n * size + arguments.records]]


def tokenizer_of(arguments: argparse.Namespace) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(arguments.data / "tokenizer")


def scorer_of(
    model: Any, tokenizer: Any, batch_tokens: int | None, *, kind: Any = None, early_end: bool = True, **settings: Any
) -> Any:
    from calibudget.lm.loading import LanguageModel
    from calibudget.scoring.local import LocalScorer
    from calibudget.scoring.scorer import ScorerSettings

    loaded = LanguageModel(model=model, tokenizer=tokenizer, identity={}, context_length=4096)
    asked = ScorerSettings(batch_tokens=batch_tokens, **settings)
    return (kind or LocalScorer)(loaded, asked, early_end=early_end)


def agreeing_scorer() -> Any:
    """The local scorer, with records that it is told to take for settled by their forward."""
    from calibudget.scoring.local import LocalScorer

    class Agreeing(LocalScorer):
        """Takes some records for settled by their forward, as those are that agree with their reference to its end."""

        agreeing: frozenset[str] = frozenset()

        def _is_settled(self, work: Any, start: tuple[int, ...]) -> bool:
            return work.item.record.record_id in self.agreeing or super()._is_settled(work, start)

    return Agreeing


def limit_of(report: Report, model: Any, works: list[Any]) -> float:
    """Seconds for reading every token, with the head at response positions, at the matmul rate."""
    return reading_operations(model, [work.example for work in works]) / report.matmul


# --- the peer: transformers as people write it


def padded(rows: list[Any], *, left: bool) -> tuple[Any, Any]:
    """Ids filled up with 2 on one side, and their mask."""
    import torch

    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), 2, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        own = slice(longest - len(row), None) if left else slice(len(row))
        ids[number, own], mask[number, own] = torch.tensor(row), 1
    return ids, mask


def padded_nlls(model: Any, examples: list[Any], batch_size: int) -> list[float]:
    """Mean NLL of each response: right-padded batches, full logits, float32 log-softmax."""
    import torch

    nlls = []
    for at in range(0, len(examples), batch_size):
        chunk = examples[at : at + batch_size]
        ids, mask = padded([one.prompt_ids + one.response_ids for one in chunk], left=False)
        ids, mask = ids.to(model.device), mask.to(model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            scores = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        for row, example in enumerate(chunk):
            own = scores[row, len(example.prompt_ids) - 1 : example.total_length - 1]
            nlls.append(-own.mean().item())
    return nlls


def padded_texts(model: Any, examples: list[Any], batch_size: int, *, ends: bool) -> list[tuple[int, ...]]:
    """Greedy ids of each prompt by `generate` over left-padded batches."""
    import torch

    texts = []
    for at in range(0, len(examples), batch_size):
        ids, mask = padded([one.prompt_ids for one in examples[at : at + batch_size]], left=True)
        settings: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 2}
        settings |= {"eos_token_id": 2} if ends else {"eos_token_id": 2, "min_new_tokens": NEW_TOKENS}
        ids, mask = ids.to(model.device), mask.to(model.device)
        with torch.inference_mode():
            made = model.generate(ids, attention_mask=mask, **settings)[:, ids.shape[1] :].tolist()
        texts += [tuple(row[: row.index(2)]) if ends and 2 in row else tuple(row) for row in made]
    return texts


def both_passes(
    report: Report, part: str, name: str, model: Any, works: list[Any], size: int, share: float, **more: Any
) -> None:
    """Time both padded passes once over a share of the records, in their given order, and scale to all."""
    some = [work.example for work in works[: max(size, round(share * len(works)))]]
    padded_nlls(model, some[:size], size)
    padded_texts(model, some[:2], size, ends=part == "small")
    free()
    first, _ = timed(lambda: padded_nlls(model, some, size))
    second, _ = timed(lambda: padded_texts(model, some, size, ends=part == "small"))
    scale = len(works) / len(some)
    limit = limit_of(report, model, works)
    report.note(part, f"{name}: likelihood {first * scale:.2f} s, generate {second * scale:.2f} s, over {len(some)}")
    report.row(part, name, seconds=(first + second) * scale, limit=limit, **more)


# --- parts


def check(arguments: argparse.Namespace, report: Report) -> None:
    """Packed and captured against plain, in float32 (loops) and bfloat16 (the kernel)."""
    import torch

    from calibudget.lm.forward import plain_forward, teacher_forced

    items = load_items(arguments)
    items = items[:: max(1, len(items) // 8)]
    tokenizer = tokenizer_of(arguments)
    for family, more in FAMILIES.items():
        for dtype in (torch.float32, torch.bfloat16):
            with report.part(f"check, {family} {dtype}"):
                model = random_model(TINY | TOKENS, family=family, device=arguments.device, dtype=dtype, **more)
                with torch.no_grad():
                    for parameter in model.parameters():
                        if parameter.dim() > 1:
                            parameter.mul_(3)
                scorer = scorer_of(model, tokenizer, 2048, max_new_tokens=NEW_TOKENS, early_end=False)
                examples = [work.example for work in scorer._encode(items)]
                packed = [one.nll for one in teacher_forced(model, examples)[0]]
                texts = [one.text for one in scorer.measure(items)]
                peer = [
                    tokenizer.decode(ids, skip_special_tokens=True)
                    for ids in padded_texts(model, examples, 1, ends=True)
                ]
                plain = [plain_forward(model, one).nll for one in examples]
                exact = [plain_forward(model.float(), one).nll for one in examples]
                same = sum(one == other for one, other in zip(texts, peer, strict=True))
                report.note(
                    "check",
                    f"{family} {str(dtype)[6:]}: packed {scorer._packs}; NLL against float32: packed "
                    f"{largest(packed, exact):.1e}, plain {largest(plain, exact):.1e}; texts equal to one-by-one "
                    f"generate {same}/{len(items)}",
                )
    if arguments.device == "cuda":
        check_caches(arguments.device, report)


def check_caches(device: str, report: Report) -> None:
    """Decoding's attention in bfloat16 against float64: relative error of the cache without filling and with it."""
    import torch

    from calibudget.lm.attention import Bounds, Packed
    from calibudget.lm.kv_cache import Cached, Filled, Snug
    from calibudget.lm.prefix_tree import Part

    count, draw = 96, random.Random(1)
    for heads, groups, size, window in ((32, 32, 128, None), (32, 8, 128, None), (9, 3, 64, None), (8, 2, 64, 48)):
        lengths = [draw.randint(20, 700) for _ in range(count)]
        parts = [Part(ids=tuple(range(length)), parent=None, depth=0) for length in lengths]
        keys, values = torch.randn(2, groups, sum(lengths), size, device=device, dtype=torch.bfloat16)

        def cache(kind: type[Cached], dtype: Any, parts: Any = parts, keys: Any = keys, values: Any = values) -> Cached:
            layout = Packed(parts, list(range(count)), torch.device(device))
            layout.keys[0], layout.values[0] = keys.to(dtype), values.to(dtype)
            tokens = [layout.tokens(i) for i in range(count)]
            return kind(layout, tokens, [len(own) + 6 for own in tokens], release=True)

        caches = [cache(Snug, torch.bfloat16), cache(Filled, torch.bfloat16), cache(Filled, torch.float64)]
        rows, errors = torch.arange(count, device=device), [0.0, 0.0]
        for step in range(6):
            if step == 3:  # some rows are left
                rows = rows[::3]
                for one in caches:
                    one.keep(rows)
            new = [torch.randn(len(rows), n, 1, size, device=device).bfloat16() for n in (heads, groups, groups)]
            kinds = zip(caches, (torch.bfloat16, torch.bfloat16, torch.float64), strict=True)
            own = [
                one.attend(0, *(x.to(dtype) for x in new), Bounds(None, window, None)).double() for one, dtype in kinds
            ]
            errors = [max(e, float((o - own[2]).norm() / own[2].norm())) for e, o in zip(errors, own, strict=False)]
            for one in caches:
                one.advance()
        text = f"heads {heads}/{groups}, window {window}: without filling {errors[0]:.1e}, with it {errors[1]:.1e}"
        report.note("check", f"decoding's attention in bfloat16 against float64, {text}")


def largest(ones: list[float], others: list[float]) -> float:
    return max((abs(one - other) for one, other in zip(ones, others, strict=True)), default=0.0)


def seven(arguments: argparse.Namespace, report: Report) -> None:
    """The 7B shape with random weights."""
    import torch

    from calibudget.scoring.batches import measure_all

    shape, dtype = (SEVEN, torch.bfloat16) if arguments.device == "cuda" else (TINY, torch.float32)
    model = random_model(shape | TOKENS, device=arguments.device, dtype=dtype)
    tokenizer, items = tokenizer_of(arguments), load_items(arguments)
    scorer = scorer_of(model, tokenizer, arguments.batch_tokens, kind=agreeing_scorer(), max_new_tokens=NEW_TOKENS)
    works = scorer._encode(items)
    limit = limit_of(report, model, works)
    tokens = sum(work.example.total_length for work in works)
    batches = scorer.batches(items)
    report.note(
        "seven",
        f"{len(works)} records, {tokens:,} tokens, limit {limit:.2f} s, packed {scorer._packs}, {len(batches)} batches "
        f"of at most {scorer.describe()['batch_tokens']:,} tokens",
    )
    scorer.measure(items[:32])
    names = [item.record.record_id for item in items]
    for share in (0.0, 0.35, 0.9):
        scorer.agreeing = frozenset(random.Random(1).sample(names, round(share * len(names))))
        free()
        with counting_decoded() as decoded:
            seconds, found = repeated(arguments.runs, lambda: measure_all(scorer, items))
        what, count = f"ours, {share:.0%} agree", sum(decoded) // arguments.runs
        report.row("seven", what, seconds=median(seconds), limit=limit, runs=seconds, decoded=count)
        splits = max(one.batch_splits for one in found)
        if splits:
            report.note("seven", f"{what}: batches were halved {splits} times for want of memory")
    free()
    seconds, _ = repeated(arguments.runs, lambda: [read_only(scorer, works, batch) for batch in batches])
    report.row("seven", "ours, likelihood alone", seconds=median(seconds), limit=limit, runs=seconds)
    scorer.agreeing = frozenset()
    if arguments.profile:
        work = lambda: scorer.measure([items[i] for i in batches[0]])  # noqa: E731
        gpu.profiled(work, arguments.output / "scoring_gpu_profile.txt")
    shuffled = works[:]
    random.Random(0).shuffle(shuffled)
    share, sizes = arguments.peer_share, (PEER_BATCH, 4 * PEER_BATCH)
    both_passes(report, "seven", f"peer, batches of {sizes[0]}", model, shuffled, sizes[0], share, peer=True)
    both_passes(report, "seven", f"peer, batches of {sizes[1]}", model, shuffled, sizes[1], share)


@contextmanager
def counting_decoded() -> Iterator[list[int]]:
    """How many records each decoding run took up while the block runs."""
    from calibudget.scoring import local

    decoded, keep = [], local.continue_greedily

    def counting(model: Any, layout: Any, continuations: Any, *others: Any, **options: Any) -> Any:
        decoded.append(len(continuations))
        return keep(model, layout, continuations, *others, **options)

    local.continue_greedily = counting
    try:
        yield decoded
    finally:
        local.continue_greedily = keep


def read_only(scorer: Any, works: list[Any], batch: tuple[int, ...]) -> Any:
    from calibudget.lm.forward import teacher_forced

    return teacher_forced(scorer._model, [works[i].example for i in batch], keep=False)[0]


def small(arguments: argparse.Namespace, report: Report) -> None:
    """SmolLM2 with its own weights: time, and differing answers."""
    from calibudget.lm.loading import load_model
    from calibudget.scoring.batches import measure_all
    from calibudget.scoring.local import LocalScorer
    from calibudget.tasks.answers import parse_answer

    items = load_items(arguments)
    answers: dict[str, list[Any]] = {}

    def parsed(texts: list[Any]) -> list[Any]:
        return [parse_answer(item.answer, text) for item, text in zip(items, texts, strict=True)]

    for dtype in ("float32", "bfloat16"):
        loaded = load_model(arguments.model, device=arguments.device, dtype=dtype)
        scorer = LocalScorer(loaded)
        works = scorer._encode(items)
        examples = [work.example for work in works]
        measure_all(scorer, items[:64])
        free()
        seconds, measured = repeated(arguments.runs, lambda scorer=scorer: measure_all(scorer, items))
        limit = limit_of(report, loaded.model, works)
        report.row("small", f"ours, {dtype}", seconds=median(seconds), limit=limit, runs=seconds)
        answers[f"ours {dtype}"] = parsed([one.text for one in measured])
        if dtype == "bfloat16":
            what = f"peer, batches of {PEER_BATCH}, {dtype}"
            both_passes(report, "small", what, loaded.model, works, PEER_BATCH, 0.1, peer=True)
        for size, run in LARGE_BATCHES[dtype]:
            first, nlls = timed(lambda m=loaded.model, e=examples, size=size: padded_nlls(m, e, size))
            second, texts = timed(lambda m=loaded.model, e=examples, size=size: padded_texts(m, e, size, ends=True))
            name = f"padded {dtype}, batches of {size}, run {run}"
            report.row("small", name, seconds=first + second, limit=limit)
            answers[name] = parsed([loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in texts])
            report.note("small", f"NLL, ours against {name}: {largest([m.nll for m in measured], nlls):.1e} at most")
            if dtype == "float32":
                unlike = [i for i, own in enumerate(answers["ours float32"]) if own != answers[name][i]]
                one_by_one(report, loaded, works, measured, {"where the padded answer differs": unlike})
        del loaded, scorer, works
        free()
    names = list(answers)
    for n, one in enumerate(names):
        for other in names[n + 1 :]:
            differing = sum(a != b for a, b in zip(answers[one], answers[other], strict=True))
            report.note("small", f"parsed answers that differ, {one} against {other}: {differing} of {len(items)}")


def one_by_one(
    report: Report, loaded: Any, works: list[Any], measured: list[Any], others: dict[str, list[int]]
) -> None:
    """Every fiftieth record in float32, and others: plain forward and `generate` of one example at a time."""
    from calibudget.lm.forward import plain_forward
    from calibudget.tasks.answers import parse_answer

    every = list(range(0, len(works), max(1, len(works) // 16)))
    for name, chosen in {"every fiftieth": every, **others}.items():
        some = [works[i] for i in chosen]
        nlls = [plain_forward(loaded.model, work.example).nll for work in some]
        made = padded_texts(loaded.model, [work.example for work in some], 1, ends=True)
        texts = [loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in made]
        same = sum(
            parse_answer(work.item.answer, text) == parse_answer(work.item.answer, measured[i].text)
            for i, work, text in zip(chosen, some, texts, strict=True)
        )
        off = largest([measured[i].nll for i in chosen], nlls)
        report.note(
            "small",
            f"float32 against one-by-one forward and generate, {name}: {same} of {len(some)} parsed answers equal, "
            f"NLL differs by {off:.1e} at most",
        )


if __name__ == "__main__":
    main()

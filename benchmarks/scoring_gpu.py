"""Scoring on GPUs: the NLL and the greedy answer of 800 real calibration records, beside two padded passes.

    python benchmarks/scoring_gpu.py --make-data build/scoring-gpu      (here; needs CALIBUDGET_DATA, no GPU)
    python benchmarks/scoring_gpu.py --data build/scoring-gpu [--parts check,seven,small,scaling] [--model DIR_OR_GGUF]

Parts: `check` holds packed readings and captured decoding against plain transformers on small random models of several
families; `seven` times the LLaMA-2-7B shape with random weights where 0, 35 and 90 % of the records agree with their
reference (an agreeing one needs no decoding; no answer ends early here, so it is the worst case), and the peer: one
padded pass for the likelihood and one for `generate`, in transformers as people write it; `small` is SmolLM2 with its
own weights (`--model`): time, and how many parsed answers differ in bfloat16, beside the padded baseline's own
differences between two batch sizes; `scaling` times one and two worker processes on one and two GPUs.

The limit is the time that the multiply-adds of all tokens of prompts and responses take at the matmul rate measured in
the same run, with logits at response positions only and no decoding. Prints one Markdown table and writes it with all
numbers to the output directory ($OUT, or benchmarks/results).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "build" / "site")]
# Scoring reads no Parquet, and its bytes matter to no one here: GPU machines often lack these two.
for missing in ("pyarrow", "rfc8785"):
    if find_spec(missing) is None:
        sys.modules[missing] = MagicMock()
        sys.modules[missing].dumps = lambda value: json.dumps(value, sort_keys=True).encode()
        sys.modules[f"{missing}.parquet"] = MagicMock()

SOURCES = ("arc_challenge", "arc_easy", "boolq", "hellaswag", "openbookqa", "piqa", "social_i_qa", "winogrande")
SEVEN = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
SEVEN |= {"num_key_value_heads": 32, "max_position_embeddings": 4096}
TINY = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--make-data", type=Path)
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "scoring-gpu")
    parser.add_argument("--parts", default="check,seven")
    parser.add_argument("--model", help="SmolLM2: a directory or a .gguf file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peer-share", type=float, default=1.0, help="share of the records that the peer is timed on")
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--profile", action="store_true", help="print where the device's time goes at the 7B shape")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ROOT / "benchmarks" / "results")))
    arguments = parser.parse_args()
    if arguments.make_data:
        make_data(arguments.make_data)
        return
    report = Report(arguments.output)
    parts = {"check": check, "seven": seven, "small": small, "scaling": scaling}
    for name in arguments.parts.split(","):
        start = time.perf_counter()
        try:
            parts[name](arguments, report)
        except Exception as error:  # one part's fault must not cost the others' measurements
            report.note(name, f"FAILED: {type(error).__name__}: {error}")
            traceback.print_exc()
        report.note(name, f"took {time.perf_counter() - start:.0f} s")
        free()
    print(report.table())


class Report:
    """Collects rows and notes, and writes them after each."""

    def __init__(self, directory: Path) -> None:
        import torch

        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._directory = directory
        self.matmul = matmul_rate()
        libraries = ", ".join(f"{name} {found(name)}" for name in ("torch", "transformers"))
        self.machine = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, Python "
        self.machine += f"{platform.python_version()}, {libraries}"
        self.note("machine", f"{self.machine}; matmul {self.matmul / 1e12:.0f} TFLOP/s (8192 cubed, bfloat16)")

    def row(self, part: str, what: str, seconds: float, limit: float, **more: Any) -> None:
        import torch

        peak = torch.cuda.max_memory_allocated() / 2**30
        row = {"part": part, "what": what, "seconds": seconds, "limit": limit, "peak_gib": peak} | more
        self.rows.append(row)
        print(row, flush=True)
        self._write()

    def note(self, part: str, text: str) -> None:
        self.notes.append(f"{part}: {text}")
        print(self.notes[-1], flush=True)
        self._write()

    def table(self) -> str:
        lines = [
            "| part | what | seconds | peer / ours | ours / limit | decoded | GiB |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            peers = [other["seconds"] for other in self.rows if other["part"] == row["part"] and other.get("peer")]
            cells = (
                row["part"],
                row["what"],
                f"{row['seconds']:.2f}",
                f"{peers[0] / row['seconds']:.1f}" if peers else "",
                f"{row['seconds'] / row['limit']:.2f}",
                str(row.get("decoded", "")),
                f"{row['peak_gib']:.1f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def _write(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        body = {"machine": self.machine, "matmul": self.matmul, "rows": self.rows, "notes": self.notes}
        (self._directory / "scoring_gpu.json").write_text(json.dumps(body, indent=1))
        (self._directory / "scoring_gpu.md").write_text(self.table())


def found(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


def matmul_rate() -> float:
    """Operations a second of 8192-cubed bfloat16 products: the median of ten runs of five."""
    import torch

    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = left @ right
    seconds = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(5):
            torch.mm(left, right, out=product)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3 / 5)
    return 2 * 8192**3 / statistics.median(seconds[2:])


def free() -> None:
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def timed(work: Any) -> tuple[float, Any]:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


# --- data and models


def make_data(directory: Path) -> None:
    """The calibration records of the eight commonsense sources (100 each, seed 42) and SmolLM2's tokenizer."""
    from calibudget.lm import load_tokenizer
    from calibudget.scoring import CalibrationItem
    from calibudget.scoring.wire import item_to_json
    from calibudget.sources import SourceSpec, read_source, split_source

    rows = []
    for label in SOURCES:
        name = "hellaswag_valsplit" if label == "hellaswag" else label
        spec = SourceSpec(label=label, path=f"commonsense/{name}.train.jsonl.gz", preset=label, duplicates="keep")
        read = read_source(spec, Path(os.environ["CALIBUDGET_DATA"]))
        split = split_source(read, split_seed=42, selection_seed=42, calibration_size=100)
        rows += [item_to_json(CalibrationItem(record=record, answer=spec.answers)) for record in split.calibration]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "items.json").write_text(json.dumps(rows))
    load_tokenizer("embedded").save_pretrained(directory / "tokenizer")
    print(f"{len(rows)} records: {directory}")


def load_items(directory: Path) -> list[Any]:
    from calibudget.scoring.wire import item_from_json

    return [item_from_json(row) for row in json.loads((directory / "items.json").read_text())]


def tokenizer_of(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory / "tokenizer")


def random_model(family: str, shape: dict[str, Any], dtype: Any, **more: Any) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = {"vocab_size": 49152, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2} | shape | more
    config = AutoConfig.for_model(family, **settings)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def scorer_of(model: Any, tokenizer: Any, batch_tokens: int, **settings: Any) -> Any:
    from calibudget.lm import LanguageModel
    from calibudget.scoring import LocalScorer

    loaded = LanguageModel(model=model, tokenizer=tokenizer, identity={}, context_length=4096)
    return LocalScorer(loaded, batch_tokens=batch_tokens, **settings)


def limit_of(report: Report, model: Any, works: list[Any]) -> float:
    """Seconds for the multiply-adds of every token, and of the head at response positions, at the matmul rate."""
    head = model.get_output_embeddings().weight.numel()
    embeddings = model.get_input_embeddings().weight.numel()
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    body = sum(parameter.numel() for parameter in model.parameters()) - embeddings - (0 if tied else head)
    tokens = sum(work.example.total_length for work in works)
    rows = sum(len(work.example.response_ids) for work in works)
    return 2 * (body * tokens + head * rows) / report.matmul


# --- the peer: transformers as people write it


def padded_nlls(model: Any, works: list[Any], batch_size: int) -> list[float]:
    """Mean NLL of each response: right-padded batches, full logits, float32 log-softmax."""
    import torch

    nlls = []
    for at in range(0, len(works), batch_size):
        chunk = [work.example for work in works[at : at + batch_size]]
        longest = max(example.total_length for example in chunk)
        ids = torch.full((len(chunk), longest), 2, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, example in enumerate(chunk):
            ids[row, : example.total_length] = torch.tensor(example.prompt_ids + example.response_ids)
            mask[row, : example.total_length] = 1
        with torch.inference_mode():
            logits = model(input_ids=ids.cuda(), attention_mask=mask.cuda(), use_cache=False).logits
            scores = logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None].cuda())[..., 0]
        for row, example in enumerate(chunk):
            own = scores[row, len(example.prompt_ids) - 1 : example.total_length - 1]
            nlls.append(-own.mean().item())
    return nlls


def padded_texts(model: Any, works: list[Any], batch_size: int, *, ends: bool) -> list[tuple[int, ...]]:
    """Greedy ids of each prompt by `generate` over left-padded batches."""
    import torch

    texts = []
    for at in range(0, len(works), batch_size):
        chunk = [work.example.prompt_ids for work in works[at : at + batch_size]]
        longest = max(map(len, chunk))
        ids = torch.full((len(chunk), longest), 2, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(chunk):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        settings: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 2}
        settings |= {"eos_token_id": 2} if ends else {"eos_token_id": 2, "min_new_tokens": NEW_TOKENS}
        with torch.inference_mode():
            made = model.generate(ids.cuda(), attention_mask=mask.cuda(), **settings)[:, longest:].tolist()
        texts += [tuple(row[: row.index(2)]) if ends and 2 in row else tuple(row) for row in made]
    return texts


# --- parts


def check(arguments: argparse.Namespace, report: Report) -> None:
    """Packed and captured against plain, in float32 (loops) and bfloat16 (the kernel)."""
    import torch

    from calibudget.lm.forward import plain_forward, teacher_forced

    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer, items = tokenizer_of(arguments.data), load_items(arguments.data)[::20]
    for family, more in FAMILIES.items():
        for dtype in (torch.float32, torch.bfloat16):
            try:
                model = random_model(family, TINY, dtype, max_position_embeddings=4096, **more)
                with torch.no_grad():
                    for parameter in model.parameters():
                        if parameter.dim() > 1:
                            parameter.mul_(3)
                scorer = scorer_of(model, tokenizer, 2048, max_new_tokens=NEW_TOKENS, early_end=False)
                works = scorer._encode(items)
                plain = [plain_forward(model, work.example).nll for work in works]
                exact = [plain_forward(model.float(), work.example).nll for work in works]
                model.to(dtype)
                packed = [one.nll for one in teacher_forced(model, [work.example for work in works])[0]]
                texts = [one.text for one in scorer.measure(items)]
                peer = [
                    tokenizer.decode(ids, skip_special_tokens=True) for ids in padded_texts(model, works, 1, ends=True)
                ]
                same = sum(one == other for one, other in zip(texts, peer, strict=True))
                report.note(
                    "check",
                    f"{family} {str(dtype)[6:]}: packed {scorer._packs}; NLL against float32: packed "
                    f"{largest(packed, exact):.1e}, plain {largest(plain, exact):.1e}; texts equal to one-by-one "
                    f"generate {same}/{len(items)}",
                )
            except Exception as error:
                report.note("check", f"{family} {dtype}: FAILED: {type(error).__name__}: {error}")
                traceback.print_exc()
            free()
    torch.backends.cuda.matmul.allow_tf32 = True


def largest(ones: list[float], others: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(ones, others, strict=True))


def seven(arguments: argparse.Namespace, report: Report) -> None:
    """The 7B shape with random weights."""
    import torch

    from calibudget.scoring.local import LocalScorer

    class Agreeing(LocalScorer):
        """Takes the last token of a reference for its end: random weights never say the end token."""

        def _is_settled(self, work: Any, start: tuple[int, ...]) -> bool:
            return start == work.example.response_ids or super()._is_settled(work, start)

    model = random_model("llama", SEVEN, torch.bfloat16)
    tokenizer, items = tokenizer_of(arguments.data), load_items(arguments.data)
    scorer = scorer_of(model, tokenizer, arguments.batch_tokens, max_new_tokens=NEW_TOKENS)
    scorer.__class__ = Agreeing
    works = scorer._encode(items)
    limit = limit_of(report, model, works)
    tokens = sum(work.example.total_length for work in works)
    report.note("seven", f"{len(works)} records, {tokens:,} tokens, limit {limit:.2f} s, packed {scorer._packs}")
    batches = scorer.batches(items)
    spoken = greedy(scorer, works, batches)
    for share in (0.0, 0.35, 0.9):
        some = agreeing(works, spoken, share)
        run_batches(scorer, some, batches[:1])
        seconds, decoded = [], 0
        for _ in range(arguments.runs):
            one, decoded = timed(lambda some=some: run_batches(scorer, some, batches))
            seconds.append(one)
        report.row(
            "seven", f"ours, {share:.0%} agree", statistics.median(seconds), limit, runs=seconds, decoded=decoded
        )
    forward, _ = timed(lambda: [read_only(scorer, works, batch) for batch in batches])
    report.row("seven", "ours, likelihood alone", forward, limit)
    if arguments.profile:
        profile(lambda: run_batches(scorer, agreeing(works, spoken, 0.35), batches[:1]), arguments.output)
    shuffled = works[:]
    random.Random(0).shuffle(shuffled)
    part = shuffled[: int(len(shuffled) * arguments.peer_share)]
    padded_nlls(model, part[:PEER_BATCH], PEER_BATCH)
    padded_texts(model, part[:PEER_BATCH], PEER_BATCH, ends=False)
    free()
    first, _ = timed(lambda: padded_nlls(model, part, PEER_BATCH))
    second, _ = timed(lambda: padded_texts(model, part, PEER_BATCH, ends=False))
    scale = len(works) / len(part)
    report.row("seven", "peer, likelihood pass", first * scale, limit)
    report.row("seven", "peer, generate pass", second * scale, limit)
    report.row("seven", "peer, both passes", (first + second) * scale, limit, peer=True)


def greedy(scorer: Any, works: list[Any], batches: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The model's own greedy ids of each record."""
    texts: dict[int, tuple[int, ...]] = {}
    keep = scorer._text
    for batch in batches:
        ids: list[tuple[int, ...]] = []
        scorer._text = lambda found, ids=ids: ids.append(tuple(found)) or ""
        scorer._early_end = False
        scorer._measure([works[i] for i in batch])
        texts |= zip(batch, ids[-len(batch) :], strict=True)
    scorer._text, scorer._early_end = keep, True
    return [texts[i] for i in range(len(works))]


def agreeing(works: list[Any], spoken: list[tuple[int, ...]], share: float) -> list[Any]:
    """The works, a share of them with the model's own words as reference, as many as their reference has."""
    chosen = set(random.Random(1).sample(range(len(works)), round(share * len(works))))
    return [
        replace(work, example=replace(work.example, response_ids=spoken[i][: len(work.example.response_ids)]))
        if i in chosen
        else work
        for i, work in enumerate(works)
    ]


def run_batches(scorer: Any, works: list[Any], batches: list[tuple[int, ...]]) -> int:
    """Score all batches; how many records had to be decoded."""
    from calibudget.scoring import local

    decoded, keep = [], local.continue_greedily

    def counting(model: Any, layout: Any, continuations: Any, stop_ids: Any) -> Any:
        decoded.append(len(continuations))
        return keep(model, layout, continuations, stop_ids)

    local.continue_greedily = counting
    try:
        for batch in batches:
            scorer._measure([works[i] for i in batch])
    finally:
        local.continue_greedily = keep
    return sum(decoded)


def read_only(scorer: Any, works: list[Any], batch: tuple[int, ...]) -> Any:
    from calibudget.lm.forward import teacher_forced

    return teacher_forced(scorer._model, [works[i].example for i in batch], keep=False)[0]


def profile(work: Any, directory: Path) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        work()
    text = found.key_averages().table(sort_by="cuda_time_total", row_limit=30, max_name_column_width=60)
    (directory / "scoring_gpu_profile.txt").write_text(text)


def small(arguments: argparse.Namespace, report: Report) -> None:
    """SmolLM2 with its own weights: time, and differing answers."""
    from calibudget.lm import load_model
    from calibudget.scoring import LocalScorer, measure_all
    from calibudget.tasks import parse_answer

    items = load_items(arguments.data)
    answers: dict[str, list[Any]] = {}
    for dtype in ("float32", "bfloat16"):
        loaded = load_model(arguments.model, device="cuda", dtype=dtype)
        scorer = LocalScorer(loaded, batch_tokens=arguments.batch_tokens)
        works = scorer._encode(items)
        limit = limit_of(report, loaded.model, works)
        measure_all(scorer, items[:64])
        seconds = []
        for _ in range(arguments.runs):
            one, measured = timed(lambda scorer=scorer: measure_all(scorer, items))
            seconds.append(one)
        report.row("small", f"ours, {dtype}", statistics.median(seconds), limit, runs=seconds)
        answers[dtype] = [parse_answer(i.answer, m.text) for i, m in zip(items, measured, strict=True)]
        for size in (16, 8) if dtype == "bfloat16" else (16,):
            first, nlls = timed(lambda m=loaded.model, w=works, size=size: padded_nlls(m, w, size))
            second, texts = timed(lambda m=loaded.model, w=works, size=size: padded_texts(m, w, size, ends=True))
            is_peer = dtype == "bfloat16" and size == 16
            report.row("small", f"two padded passes of {size}, {dtype}", first + second, limit, peer=is_peer)
            decoded = [loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in texts]
            name = f"padded {size} {dtype}"
            answers[name] = [parse_answer(i.answer, text) for i, text in zip(items, decoded, strict=True)]
            report.note("small", f"NLL, ours against {name}: {largest([m.nll for m in measured], nlls):.1e} at most")
        del loaded, scorer, works
        free()
    for one, other in (
        ("float32", "padded 16 float32"),
        ("bfloat16", "padded 16 bfloat16"),
        ("bfloat16", "padded 8 bfloat16"),
        ("padded 16 bfloat16", "padded 8 bfloat16"),
        ("bfloat16", "float32"),
        ("padded 16 bfloat16", "float32"),
    ):
        differing = sum(a != b for a, b in zip(answers[one], answers[other], strict=True))
        report.note("small", f"parsed answers that differ, {one} against {other}: {differing} of {len(items)}")


def scaling(arguments: argparse.Namespace, report: Report) -> None:
    """One and two worker processes at the 7B shape, the model loaded beforehand."""
    import torch

    from calibudget.scoring import LocalPool, ScorerSettings

    items = load_items(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        model = random_model("llama", SEVEN, torch.bfloat16)
        model.save_pretrained(folder)
        tokenizer_of(arguments.data).save_pretrained(folder)
        limit = limit_of(report, model, scorer_of(model, tokenizer_of(arguments.data), 8192)._encode(items))
        del model
        free()
        settings = ScorerSettings(model=folder, device="cuda", batch_tokens=arguments.batch_tokens // 4)
        results = {}
        for workers in range(1, torch.cuda.device_count() + 1):
            with LocalPool(settings, workers=workers) as pool:
                batches = {n: [items[i] for i in batch] for n, batch in enumerate(pool.batches(items))}
                dict(pool.measure_batches({n: batches[n] for n in range(workers)}))
                seconds = []
                for _ in range(arguments.runs):
                    one, found = timed(lambda pool=pool, batches=batches: dict(pool.measure_batches(batches)))
                    seconds.append(one)
                results[workers] = found
                report.row("scaling", f"{workers} GPUs", statistics.median(seconds), limit, runs=seconds)
        equal = len({json.dumps([[m.nll, m.text] for n in sorted(r) for m in r[n]]) for r in results.values()}) == 1
        report.note("scaling", f"same bits with any number of workers: {equal}")


if __name__ == "__main__":
    main()

"""vLLM beside our scoring on one GPU: the likelihood of each reference and a greedy answer, of the same records.

    python benchmarks/scoring_vllm.py --data build/scoring-gpu [--parts seven,small] [--model DIR_OR_GGUF] [--runs 3]

The records and tokens are those of `scoring_gpu.py --prepare`. vLLM gets each record twice: prompt and response with
`prompt_logprobs` and one new token, and the prompt for at most 32 greedy tokens. `in two calls` asks for all of the
former, then all of the latter, whose prompts it then finds in its cache; `in one call` lets it mix them. Caches are
emptied before each run; loading, compiling and warm-up don't count on either side, nor does reading vLLM's
log-probabilities out of its answers. Part `seven` is the LLaMA-2-7B shape with random weights, ours where no record
agrees and no answer ends early; `small` is SmolLM2 with its own weights (`--model`), whose NLLs and answers are
compared too. `--graphs` leaves out vLLM's compiling, `--eager` its CUDA graphs too. Needs vLLM; GiB of vLLM are what
the card holds after the runs, most of it reserved.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any

import gpu
import scoring_gpu
from gpu import SEVEN, Report, free, timed
from measuring import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "scoring-gpu", help="of scoring_gpu.py --prepare")
    gpu.add_options(parser, parts="seven,small")
    parser.add_argument("--model", help="SmolLM2: a directory or a .gguf file")
    parser.add_argument("--records", type=int, help="records a source")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", type=float, default=0.85, help="share of the card's memory that vLLM takes")
    parser.add_argument("--graphs", action="store_true", help="vLLM with CUDA graphs for decoding, not compiled")
    parser.add_argument("--eager", action="store_true", help="vLLM without CUDA graphs")
    arguments = parser.parse_args()
    packages = ("torch", "transformers", "vllm")
    report = Report("scoring_vllm", arguments.output, scoring_gpu.table, packages=packages, seconds=arguments.seconds)
    report.run(arguments.parts, {"seven": seven, "small": small}, arguments, report)


def seven(arguments: argparse.Namespace, report: Report) -> None:
    """The 7B shape with random weights; vLLM makes its own."""
    tokenizer, items = scoring_gpu.tokenizer_of(arguments), scoring_gpu.load_items(arguments)
    model = gpu.random_model(SEVEN | scoring_gpu.TOKENS)
    kind = scoring_gpu.agreeing_scorer()
    scorer = scoring_gpu.scorer_of(model, tokenizer, None, kind=kind, max_new_tokens=scoring_gpu.NEW_TOKENS)
    examples, limit, _ = ours(arguments, report, "seven", scorer, items)
    with tempfile.TemporaryDirectory() as directory:
        model.config.architectures = ["LlamaForCausalLM"]
        model.config.save_pretrained(directory)
        del model, scorer
        free()
        theirs(arguments, report, "seven", directory, examples, limit, ends=False, load_format="dummy")


def small(arguments: argparse.Namespace, report: Report) -> None:
    """SmolLM2 with its own weights, which vLLM gets as safetensors in bfloat16."""
    from calibudget.lm.loading import load_model
    from calibudget.scoring.local import LocalScorer
    from calibudget.tasks.answers import parse_answer

    items, found = scoring_gpu.load_items(arguments), {}
    with tempfile.TemporaryDirectory() as directory:
        for dtype in ("float32", "bfloat16"):
            loaded = load_model(arguments.model, device="cuda", dtype=dtype)
            scorer = LocalScorer(loaded)
            examples, limit, measured = ours(arguments, report, "small", scorer, items, dtype)
            found[f"ours {dtype}"] = [one.nll for one in measured], [one.text for one in measured]
        loaded.model.save_pretrained(directory)
        tokenizer = loaded.tokenizer
        del loaded, scorer
        free()
        nlls, ids = theirs(arguments, report, "small", directory, examples, limit, ends=True)
    found["vLLM"] = nlls, [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    answers = {
        name: [parse_answer(item.answer, text) for item, text in zip(items, texts, strict=True)]
        for name, (_, texts) in found.items()
    }
    for one, other in combinations(found, 2):
        off = [abs(a - b) for a, b in zip(found[one][0], found[other][0], strict=True)]
        differing = sum(a != b for a, b in zip(answers[one], answers[other], strict=True))
        text = f"NLL apart {max(off):.1e} at most, {mean(off):.1e} at the mean; parsed answers that differ: {differing}"
        report.note("small", f"{one} against {other}: {text} of {len(items)}")


def ours(
    arguments: argparse.Namespace, report: Report, part: str, scorer: Any, items: list[Any], dtype: str = "bfloat16"
) -> tuple[list[Any], float, list[Any]]:
    """Time our scoring; the encoded examples, the limit in seconds and what was measured."""
    from calibudget.scoring.batches import measure_all

    works = scorer._encode(items)
    limit = scoring_gpu.limit_of(report, scorer._model, works)
    scorer.measure(items[:64])
    free()
    seconds, measured = scoring_gpu.repeated(arguments.runs, lambda: measure_all(scorer, items))
    report.row(part, f"ours, {dtype}", seconds=median(seconds), limit=limit, runs=seconds)
    return [work.example for work in works], limit, measured


def theirs(
    arguments: argparse.Namespace, report: Report, part: str, directory: str, examples: list[Any], limit: float,
    *, ends: bool, **options: Any,
) -> tuple[list[float], list[list[int]]]:  # fmt: skip
    """Time vLLM; the mean NLL of each response and the ids of each answer."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    import torch
    from vllm import LLM, SamplingParams

    if arguments.graphs:
        options["compilation_config"] = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    start = {"skip_tokenizer_init": True, "dtype": "bfloat16", "max_model_len": 4096, "seed": 0} | options
    start |= {"gpu_memory_utilization": arguments.memory, "enforce_eager": arguments.eager}
    seconds, engine = timed(lambda: LLM(model=directory, **start))
    report.note(part, f"vLLM was ready after {seconds:.0f} s")
    whole = [{"prompt_token_ids": list(one.prompt_ids + one.response_ids)} for one in examples]
    prompts = [{"prompt_token_ids": list(one.prompt_ids)} for one in examples]
    common = {"temperature": 0.0, "detokenize": False}
    reads = SamplingParams(max_tokens=1, prompt_logprobs=0, flat_logprobs=True, **common)
    limits = {"stop_token_ids": [scoring_gpu.TOKENS["eos_token_id"]]} if ends else {"ignore_eos": True}
    writes = SamplingParams(max_tokens=scoring_gpu.NEW_TOKENS, **limits, **common)

    def asked(first: list[Any], second: list[Any]) -> list[Any]:
        settings = [reads] * len(first) + [writes] * len(second)
        return list(engine.generate(first + second, settings, use_tqdm=False))

    ways = {
        "vLLM, in two calls": lambda: asked(whole, []) + asked([], prompts),
        "vLLM, in one call": lambda: asked(whole, prompts),
        "vLLM, likelihood alone": lambda: asked(whole, []),
        "vLLM, greedy alone": lambda: asked([], prompts),
    }
    asked(whole[:64], prompts[:64])
    found: list[Any] = []
    for name, work in ways.items():
        runs = []
        for _ in range(arguments.runs):
            engine.reset_prefix_cache()
            seconds, answers = timed(work)
            runs.append(seconds)
        found = found or answers
        left, total = torch.cuda.mem_get_info()
        held = (total - left) / 2**30
        report.row(part, name, seconds=median(runs), limit=limit, runs=runs, peak_gib=held, peer=name.endswith("calls"))
    count = sum(len(one.outputs[0].token_ids) for one in found[len(examples) :])
    report.note(part, f"vLLM generated {count:,} tokens of {len(examples)} records")
    nlls = []
    for example, answer in zip(examples, found, strict=False):
        own = [answer.prompt_logprobs[i] for i in range(len(example.prompt_ids), example.total_length)]
        nlls.append(-mean(at[token].logprob for at, token in zip(own, example.response_ids, strict=True)))
    return nlls, [list(one.outputs[0].token_ids) for one in found[len(examples) :]]


if __name__ == "__main__":
    main()

"""What the benchmarks on GPUs share: shapes, random models, example lengths, the matmul rate, memory and time."""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from calibudget.training.data import TrainingExample

#: LLaMA-2-7B and SmolLM2-135M.
SEVEN = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
SEVEN |= {"num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096}
SMALL = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
SMALL |= {"num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}


def found(*names: str) -> str:
    """Names of packages that are installed, each with its version."""
    texts = []
    for name in names:
        try:
            texts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(texts)


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


def training_operations(model: Any, examples: list[TrainingExample]) -> float:
    """Operations a token of training frozen linear layers with factors, the head counted where there are labels.

    A frozen weight is multiplied twice (forward, and for the gradient of its input), a factor three times.
    """
    labelled = sum(e.response_length for e in examples) / sum(e.length for e in examples)
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    layers = sum(m.weight.numel() * (6.0 if m.weight.requires_grad else 4.0) for m in linear)
    return float(layers + 4.0 * head.weight.numel() * labelled)

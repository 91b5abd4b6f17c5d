"""How fast training is, and what share that is of the device's own rate of matrix products."""

from __future__ import annotations

import time
from typing import Any, Final

import torch
from torch import nn

_SIZE: Final = 8192
_SECONDS: Final = 0.2


def flops_per_token(model: Any) -> float:
    """Floating-point operations of one trained token in the layers' matrix products; the output head left out.

    Frozen weights cost two operations a parameter forward and two backward; factors cost two more for their gradient.
    """
    head = model.get_base_model().get_output_embeddings()
    flops = 0.0
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not head:
            flops += module.weight.numel() * (6.0 if module.weight.requires_grad else 4.0)
    return flops


def measure_device(device: torch.device, dtype: torch.dtype) -> float | None:
    """Operations a second of a large matrix product on a GPU, over a fifth of a second; None on a CPU."""
    if device.type != "cuda":
        return None
    left, right = (torch.randn(_SIZE, _SIZE, device=device, dtype=dtype) for _ in range(2))
    product = left @ right
    torch.cuda.synchronize(device)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < _SECONDS:
        for _ in range(5):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize(device)
        count += 5
    return count * 2.0 * _SIZE**3 / (time.perf_counter() - start)


class Pace:
    """Counts tokens against the clock; the first steps, which compile and warm up, don't count."""

    def __init__(self, warmup_steps: int = 2) -> None:
        self._left = warmup_steps
        self._start = time.perf_counter()
        self._tokens = 0
        self._steps = 0

    def add(self, tokens: int) -> None:
        """Count one finished step."""
        if self._left:
            self._left -= 1
            self._start = time.perf_counter()
            return
        self._tokens += tokens
        self._steps += 1

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of prompts and responses a second; None while there is too little to tell."""
        elapsed = time.perf_counter() - self._start
        return self._tokens / elapsed if self._tokens and elapsed > _SECONDS else None

    def seconds_left(self, steps: int) -> float | None:
        """How long that many further steps take at the pace so far."""
        return steps * (time.perf_counter() - self._start) / self._steps if self._steps else None

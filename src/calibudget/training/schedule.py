"""How the learning rate moves over the steps: a linear warm-up from 0, then a fall to 0 (paper 3.1: cosine, 3%)."""

from __future__ import annotations

import math

from calibudget.training.config import Schedule


def warmup_steps(total: int, fraction: float) -> int:
    """Steps of the warm-up, rounded up as transformers does."""
    return math.ceil(total * fraction)


def rate_factor(step: int, total: int, warmup: int, schedule: Schedule) -> float:
    """What the peak rates are multiplied by in one step; the same as transformers' schedules of these names.

    Args:
        step: steps already taken, 0 <= step < total. The very first step of a warm-up has the factor 0.
        total: steps in all.
        warmup: steps of the warm-up.
        schedule: the fall after it.

    Returns:
        A factor in [0, 1].
    """
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - progress)
        case "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))

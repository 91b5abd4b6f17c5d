"""The direction in which one example alone would move the factors, under AdamW's state after a warm-up.

Source: Xia et al., "LESS" (2024), section 4, for the use of Adam's update in place of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calibudget.errors import TrainingError
from calibudget.training.config import TrainingConfig
from calibudget.training.learner import Learner


def plain_update(
    gradients: Tensor, mean: Tensor | None, square: Tensor, beta1: float, beta2: float, epsilon: float
) -> Tensor:
    """Adam's update without its bias corrections, of gradients (E, n) under moments (n,)."""
    top = (1.0 - beta1) * gradients
    if mean is not None:
        top = top + beta1 * mean
    return top / ((beta2 * square + (1.0 - beta2) * gradients.square()).sqrt() + epsilon)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdamDirection:
    """Turns gradients into Adam's next update, entry by entry.

    With the moments m and v after t steps, the update by a gradient g is m' / (sqrt(v') + epsilon), where
    m' = (beta1 m + (1 - beta1) g) / (1 - beta1^(t+1)) and v' = (beta2 v + (1 - beta2) g^2) / (1 - beta2^(t+1)). Since
    g stands in v' too, an entry that the warm-up never moved doesn't outweigh all others.

    Attributes:
        mean: m at every position, shape (size,), float32; None leaves the first moment out (m = 0), so that only the
            example itself gives the direction.
        square: v at every position, shape (size,), float32.
        config: betas and epsilon.
        steps: t, optimizer steps of the warm-up, at least 1.
        update: `plain_update`, or a compiled form of it.
    """

    mean: Tensor | None
    square: Tensor
    config: TrainingConfig
    steps: int
    update: Callable[..., Tensor] = plain_update

    def __call__(self, start: int, gradients: Tensor) -> Tensor:
        """Adam's update for gradients of the positions from `start` on, both of shape (E, n), float32."""
        config, own = self.config, slice(start, start + gradients.shape[1])
        mean = None if self.mean is None else self.mean[own]
        # sqrt(v / c) + e is (sqrt(v) + e sqrt(c)) / sqrt(c), so the corrections need no pass over the entries
        root = (1.0 - config.beta2 ** (self.steps + 1)) ** 0.5
        made = self.update(gradients, mean, self.square[own], config.beta1, config.beta2, config.epsilon * root)
        corrected: Tensor = made * (root / (1.0 - config.beta1 ** (self.steps + 1)))
        return corrected


def adam_direction(learner: Learner, config: TrainingConfig, steps: int, *, momentum: bool) -> AdamDirection:
    """The direction under a learner's own moments.

    Args:
        learner: as the warm-up left it, its moments loaded.
        config: the warm-up's.
        steps: its optimizer steps.
        momentum: whether the first moment counts too.

    Raises:
        TrainingError: no step was taken, so that there are no moments.
    """
    if steps < 1:
        raise TrainingError("influence needs a warm-up of at least one optimizer step, for Adam's moments")
    tensors = learner.tensors()
    moments = {
        moment: torch.cat([tensors[f"{factor.factor}.{moment}"] for factor in learner.factors])
        for moment in ("exp_avg", "exp_avg_sq")
    }
    mean = moments["exp_avg"] if momentum else None
    square = moments["exp_avg_sq"]
    update = torch.compile(plain_update, dynamic=True) if square.is_cuda else plain_update
    return AdamDirection(mean=mean, square=square, config=config, steps=steps, update=update)

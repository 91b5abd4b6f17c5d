"""The trainable factors as two flat vectors, one a rate: what the optimizer, the clipping and the devices see.

LoRA+ gives A and B rates of their own (paper 2.4). All A factors share one storage and all B factors another, with
their gradients likewise, so a step costs a handful of kernels however many layers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from calibudget.errors import TrainingError
from calibudget.training.config import TrainingConfig

#: Marks of a parameter's name that say which factor it is; embeddings are told by name as well.
_MARKS: Final = {"A": (".lora_A.", ".lora_embedding_A."), "B": (".lora_B.", ".lora_embedding_B.")}
#: Every factor starts at a multiple of this many elements, so that kernels can use wide loads.
_ALIGNMENT: Final = 64


def factor_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Part the names of the trainable parameters into "A" and "B", each in the order given.

    Raises:
        TrainingError: a name that is no factor or both, or a factor without any name.
    """
    parted: dict[str, list[str]] = {factor: [] for factor in _MARKS}
    for name in names:
        owners = [factor for factor, marks in _MARKS.items() if any(mark in name for mark in marks)]
        if len(owners) != 1:
            raise TrainingError(f"the trainable parameter {name} belongs to {len(owners)} optimizer groups, not to one")
        parted[owners[0]].append(name)
    empty = [factor for factor, found in parted.items() if not found]
    if empty:
        raise TrainingError(f"the optimizer group of the {empty[0]} factors is empty")
    return parted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatFactor:
    """One factor of all layers.

    Attributes:
        factor: "A" or "B".
        values: all of them end to end, shape (n,), float32, its gradient allocated; the layers' parameters and
            gradients are views of it.
        offsets: where each parameter starts, by name.
    """

    factor: str
    values: nn.Parameter
    offsets: Mapping[str, int]

    @property
    def gradient(self) -> Tensor:
        """The gradient of `values`, which the layers' gradients are views of."""
        if self.values.grad is None:
            raise TrainingError(f"the gradient of the {self.factor} factors was taken away")
        return self.values.grad


def flatten_factors(model: nn.Module) -> tuple[FlatFactor, ...]:
    """Move a model's trainable parameters, and gradients to come, into one storage a factor.

    Raises:
        TrainingError: the parameters don't part into factors, or one isn't float32.
    """
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    parted = factor_names(trainable)
    return tuple(_flatten(factor, {name: trainable[name] for name in names}) for factor, names in parted.items())


def _flatten(factor: str, parameters: Mapping[str, nn.Parameter]) -> FlatFactor:
    offsets: dict[str, int] = {}
    count = 0
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise TrainingError(f"the trainable parameter {name} is {parameter.dtype}, not float32")
        offsets[name] = count
        count += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
    device = next(iter(parameters.values())).device
    values = nn.Parameter(torch.zeros(count, dtype=torch.float32, device=device))
    values.grad = torch.zeros_like(values)
    for name, parameter in parameters.items():
        own = slice(offsets[name], offsets[name] + parameter.numel())
        values.data[own] = parameter.data.flatten()
        parameter.data = values.data[own].view(parameter.shape)
        parameter.grad = values.grad[own].view(parameter.shape)
    return FlatFactor(factor=factor, values=values, offsets=offsets)


def make_optimizer(factors: Iterable[FlatFactor], config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with one group a factor, in the order given, both carrying the weight decay; rates are set at each step."""
    groups = [{"params": [factor.values], "lr": 0.0, "weight_decay": config.weight_decay} for factor in factors]
    fused = groups[0]["params"][0].is_cuda  # type: ignore[index]
    return torch.optim.AdamW(groups, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=fused)

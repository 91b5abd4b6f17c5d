"""peft's linear layers, computed in the model's precision, and together where they read the same input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

#: peft's name of the only adapter there is.
ADAPTER: Final = "default"
#: Siblings that read the same input wherever a model has them all.
_SAME_INPUT: Final = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class FactorLinear(LoraLinear):  # type: ignore[misc]
    """peft's layer, computed in the precision of its input.

    peft turns the input to float32 for float32 factors; here the factors are rounded to the input's precision
    instead, as automatic mixed precision does, while they, their gradients and the optimizer stay in float32.

    Attributes:
        shared: the layers that this one is computed together with, or None.
        place: which of them this one is.
    """

    shared: SharedInput | None
    place: int

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output; anything but plain LoRA is left to peft."""
        if args or kwargs or self.disable_adapters or self.merged:
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        if self.shared is not None:
            return self.shared.output(self.place, x)
        first, second = self.factors(x.dtype)
        inner = F.linear(self.lora_dropout[ADAPTER](x), first)
        result: Tensor = self.base_layer(x) + self.raised(inner, second)
        return result

    def raised(self, inner: Tensor, second: Tensor) -> Tensor:
        """The update of the output, from the input's product with A."""
        scaling = self.scaling[ADAPTER]
        return F.linear(inner if scaling == 1.0 else inner * scaling, second)

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """A, shape (r, in), and B, shape (out, r), in a precision."""
        return self.lora_A[ADAPTER].weight.to(dtype), self.lora_B[ADAPTER].weight.to(dtype)


class SharedInput:
    """Layers that read the same input, as one product with their weights laid one below the other.

    Whichever of them is asked first computes all; the others find their output here. Their base weights become views
    of one tensor, so nothing is held twice.
    """

    def __init__(self, layers: Sequence[FactorLinear]) -> None:
        bases = [layer.get_base_layer() for layer in layers]
        self._layers = list(layers)
        self._sizes = [base.out_features for base in bases]
        self._ranks = [layer.r[ADAPTER] for layer in layers]
        self._weight = torch.cat([base.weight.data for base in bases])
        self._bias = None if bases[0].bias is None else torch.cat([base.bias.data for base in bases])
        for base, own in zip(bases, torch.split(self._weight, self._sizes), strict=True):
            base.weight.data = own
        self._input: Tensor | None = None
        self._outputs: dict[int, Tensor] = {}

    def output(self, place: int, x: Tensor) -> Tensor:
        """The output that the layer at a place has for an input."""
        if self._input is not x:
            self._input, self._outputs = x, self._compute(x)
        output = self._outputs.pop(place)
        if not self._outputs:
            self._input = None
        return output

    def _compute(self, x: Tensor) -> dict[int, Tensor]:
        firsts, seconds = zip(*(layer.factors(x.dtype) for layer in self._layers), strict=True)
        inners = torch.split(F.linear(x, torch.cat(firsts)), self._ranks, dim=-1)
        bases = torch.split(F.linear(x, self._weight, self._bias), self._sizes, dim=-1)
        parts = zip(self._layers, bases, inners, seconds, strict=True)
        return {layer.place: base + layer.raised(inner, second) for layer, base, inner, second in parts}


def use_factor_layers(model: nn.Module, *, share: bool) -> None:
    """Let every plain LoRA layer of a model compute as `FactorLinear` does.

    Args:
        model: a model with peft's layers.
        share: compute layers that read the same input together.
    """
    for module in model.modules():
        if _is_plain(module):
            module.__class__ = FactorLinear
            module.shared = None  # type: ignore[assignment]  # mypy takes every attribute of a module for a tensor
    for layers in _groups(model) if share else ():
        shared = SharedInput(layers)
        for place, layer in enumerate(layers):
            layer.shared, layer.place = shared, place


def _is_plain(module: Any) -> bool:
    """Whether a module is peft's layer on a plain linear one, without any of LoRA's variants."""
    return type(module) is LoraLinear and type(module.get_base_layer()) is nn.Linear and not module.lora_variant


def _groups(model: nn.Module) -> Iterator[list[FactorLinear]]:
    for module in model.modules():
        for names in _SAME_INPUT:
            layers = [layer for name in names if isinstance(layer := getattr(module, name, None), FactorLinear)]
            if len(layers) == len(names) and _alike(layers):
                yield layers


def _alike(layers: Sequence[Any]) -> bool:
    """Whether the base weights can lie in one tensor, and no dropout makes the inputs of the factors differ."""
    bases = [layer.get_base_layer() for layer in layers]
    kinds = {(base.in_features, base.weight.dtype, base.weight.device, base.bias is None) for base in bases}
    return len(kinds) == 1 and not any(isinstance(layer.lora_dropout[ADAPTER], nn.Dropout) for layer in layers)

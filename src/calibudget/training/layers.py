"""What training puts in place of a model's own parts: attention over packed rows, linear layers, flat factors.

Attention is causal inside each of the sequences that lie end to end in one row. Linear layers with factors compute in
the model's precision, and together where they read the same input. The factors are two flat vectors, one a rate:
LoRA+ gives A and B rates of their own (paper 2.4). All A factors share one storage and all B factors another, with
their gradients likewise, so a step costs a handful of kernels however many layers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.errors import TrainingError
from calibudget.lm.attention import varlen_attention

#: Names under which the functions stand in transformers' registry.
_KERNEL: Final = "calibudget_packed"
_MASK: Final = "calibudget_packed_mask"


def register(*, kernel: bool) -> str:
    """Make packed attention known to transformers; the name to give to `set_attn_implementation`.

    Without the variable-length kernel it is a mask over all pairs of tokens, which runs anywhere.
    """
    from transformers import AttentionInterface

    name = _KERNEL if kernel else _MASK
    AttentionInterface.register(name, kernel_attention if kernel else mask_attention)
    return name


def packed_layout(starts: Tensor, longest: int) -> dict[str, Any]:
    """What transformers' models hand on to their attention, under its own names; `starts` as `Batch` has them."""
    return {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}


def kernel_attention(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:
    """Attention output (1, T, H, D) of query (1, H, T, D) over key and value (1, G, T, D)."""
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    starts, longest = (cu_seq_lens_q, cu_seq_lens_q), (max_length_q, max_length_q)
    output = varlen_attention(queries, keys, values, starts, longest, scale=scaling, window=sliding_window)
    return output[None], None


def mask_attention(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:
    """The same through a mask of all pairs of tokens."""
    mask = _mask(cu_seq_lens_q, query.shape[2], sliding_window)
    grouped = query.shape[1] != key.shape[1]
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=grouped)
    return output.transpose(1, 2), None


def _mask(starts: Tensor, length: int, window: int | None) -> Tensor:
    """Which tokens see which, shape (T, T), bool."""
    places = torch.arange(length, device=starts.device)
    owner = torch.bucketize(places, starts[1:], right=True)
    distance = places[:, None] - places
    seen = (owner[:, None] == owner) & (distance >= 0)
    return seen if window is None else seen & (distance < window)


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
        values.data[own] = parameter.data.flatten().to(device)
        parameter.data = values.data[own].view(parameter.shape)
        parameter.grad = values.grad[own].view(parameter.shape)
    return FlatFactor(factor=factor, values=values, offsets=offsets)


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
        first, second = self.factors(x)
        inner = F.linear(self.lora_dropout[ADAPTER](x), first)
        result: Tensor = self.base_layer(x) + self.raised(inner, second)
        return result

    def raised(self, inner: Tensor, second: Tensor) -> Tensor:
        """The update of the output, from the input's product with A."""
        scaling = self.scaling[ADAPTER]
        return F.linear(inner if scaling == 1.0 else inner * scaling, second)

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A, shape (r, in), and B, shape (out, r), as an input is: in its precision, on its card."""
        return self.lora_A[ADAPTER].weight.to(x), self.lora_B[ADAPTER].weight.to(x)


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
        firsts, seconds = zip(*(layer.factors(x) for layer in self._layers), strict=True)
        inners = torch.split(F.linear(x, torch.cat(firsts)), self._ranks, dim=-1)
        bases = torch.split(F.linear(x, self._weight, self._bias), self._sizes, dim=-1)
        parts = zip(self._layers, bases, inners, seconds, strict=True)
        return {layer.place: base + layer.raised(inner, second) for layer, base, inner, second in parts}


def use_factor_layers(model: nn.Module, *, share: bool) -> None:
    """Let every plain LoRA layer of a model compute as `FactorLinear` does."""
    for module in model.modules():
        if _is_plain(module):
            module.__class__ = FactorLinear
            module.shared = None  # type: ignore[assignment]  # mypy takes every attribute of a module for a tensor
    for layers in _groups(model) if share else ():
        shared = SharedInput(layers)
        for place, layer in enumerate(layers):
            layer.shared, layer.place = shared, place


def _is_plain(module: Any) -> bool:
    """Whether a module is peft's layer on a linear one, plain or of bitsandbytes, without any of LoRA's variants."""
    if not isinstance(module, LoraLayer) or module.lora_variant:
        return False
    is_packed = type(module).__name__ in ("Linear4bit", "Linear8bitLt")  # on weights that bitsandbytes quantised
    return is_packed or (isinstance(module, LoraLinear) and type(module.get_base_layer()) is nn.Linear)


def _groups(model: nn.Module) -> Iterator[list[FactorLinear]]:
    for module in model.modules():
        for names in _SAME_INPUT:
            layers = [layer for name in names if isinstance(layer := getattr(module, name, None), FactorLinear)]
            if len(layers) == len(names) and _alike(layers):
                yield layers


def _alike(layers: Sequence[Any]) -> bool:
    """Whether the base weights can lie in one tensor, and no dropout makes the inputs of the factors differ."""
    bases = [layer.get_base_layer() for layer in layers]
    if any(type(base) is not nn.Linear for base in bases):
        return False
    kinds = {(base.in_features, base.weight.dtype, base.weight.device, base.bias is None) for base in bases}
    return len(kinds) == 1 and not any(isinstance(layer.lora_dropout[ADAPTER], nn.Dropout) for layer in layers)

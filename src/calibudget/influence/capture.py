"""Linear layers with factors that, in the backward pass, hand out every example's gradients of their own factors.

The gradient of a linear map's weight is a sum of outer products over tokens, so the gradients of single examples are
sums over each example's tokens: one product for each factor and example, of tensors that a backward pass holds anyway.
No example needs a backward pass of its own, and no gradient of a batch is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.errors import TrainingError
from calibudget.training.batches import Batch
from calibudget.training.layers import ADAPTER, FactorLinear


class Sink(Protocol):
    """What takes the gradients as they are made."""

    def add(self, start: int, gradients: Tensor) -> None:
        """Take one factor's gradients.

        Args:
            start: position of the factor's first entry among all factors' entries.
            gradients: of E examples, shape (E, n), in the model's precision.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Where the tokens of E examples lie in a batch.

    Attributes:
        index: places of each example's tokens in the packed row, shape (E, T), int64; places beyond its end repeat
            its last. None where each example is a row, filled up with tokens that have no gradient.
        mask: 1 where a place is the example's own, shape (E, T, 1), in the model's precision; None likewise.
    """

    index: Tensor | None = None
    mask: Tensor | None = None

    def outer(self, left: Tensor, right: Tensor) -> Tensor:
        """Each example's sum over its tokens of outer products.

        Args:
            left: shape (1, tokens, m) or (E, T, m).
            right: shape (1, tokens, n) or (E, T, n).

        Returns:
            Shape (E, m, n).
        """
        if self.index is not None and self.mask is not None:
            narrow = left.shape[-1] <= right.shape[-1]  # masking one of the two is enough
            left, right = left[0][self.index], right[0][self.index]
            left, right = (left * self.mask, right) if narrow else (left, right * self.mask)
        return torch.bmm(left.transpose(1, 2), right)


def segments_of(batch: Batch, lengths: list[int], dtype: torch.dtype) -> Segments:
    """Where a batch's examples lie.

    Args:
        batch: rows, or a pack, on its device.
        lengths: tokens of its examples, in order.
        dtype: the model's precision.
    """
    if batch.starts is None:
        return Segments()
    count = torch.tensor(lengths, device=batch.starts.device)[:, None]
    places = torch.arange(max(lengths), device=batch.starts.device)
    index = batch.starts[: len(lengths), None].long() + torch.minimum(places, count - 1)
    return Segments(index=index, mask=(places < count).to(dtype)[..., None])


class Capture:
    """Joins the layers of a model to whoever wants their gradients; idle unless both attributes are set.

    Attributes:
        segments: where the examples of the batch lie that goes through the model.
        sink: what takes their gradients.
    """

    def __init__(self) -> None:
        self.segments: Segments | None = None
        self.sink: Sink | None = None

    def record(self, starts: tuple[int, int], x: Tensor, inner: Tensor, upstream: Tensor, gradient: Tensor) -> None:
        """Form and hand on the gradients of one layer's A and B.

        Args:
            starts: positions of A's and B's first entries.
            x: the layer's input, shape (..., tokens, in).
            inner: scaled product of the input with A, shape (..., tokens, r).
            upstream: gradient of the input's product with A, shape (..., tokens, r).
            gradient: gradient of the layer's output, shape (..., tokens, out).
        """
        if self.segments is None or self.sink is None:
            return
        self.sink.add(starts[0], self.segments.outer(upstream, x).flatten(1))
        self.sink.add(starts[1], self.segments.outer(gradient, inner).flatten(1))


class CapturingLinear(FactorLinear):
    """`FactorLinear` whose factors' gradients go to a capture, an example at a time.

    Attributes:
        capture: where they go.
        starts: positions of A's and B's first entries among all factors' entries.
    """

    capture: Capture
    starts: tuple[int, int]

    def forward(self, x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        """The layer's output."""
        first, second = self.lora_A[ADAPTER].weight, self.lora_B[ADAPTER].weight
        record = self._record
        branch: Tensor = _Branch.apply(x, first, second, self.scaling[ADAPTER], record)  # type: ignore[no-untyped-call]
        result: Tensor = self.base_layer(x) + branch
        return result

    def _record(self, *tensors: Tensor) -> None:
        self.capture.record(self.starts, *tensors)


def capture_layers(model: nn.Module, starts_of: Callable[[str], int]) -> Capture:
    """Let every layer with factors hand out single examples' gradients.

    Args:
        model: a model whose factor layers are `FactorLinear`, none sharing its input with others.
        starts_of: position of a parameter's first entry, by the parameter's name.

    Raises:
        TrainingError: factors on a layer that isn't a plain linear one.
    """
    capture = Capture()
    for name, module in model.named_modules():
        if not hasattr(module, "lora_A"):
            continue
        if type(module) is not FactorLinear or module.shared is not None:
            kind = type(module.get_base_layer()).__name__
            together = ", computed together with others" if kind == "Linear" else ""
            raise TrainingError(f"{name}: influence takes factors on plain linear layers, not on {kind}{together}")
        starts = tuple(starts_of(f"{name}.lora_{factor}.{ADAPTER}.weight") for factor in "AB")
        module.__class__ = CapturingLinear
        module.capture, module.starts = capture, starts
    return capture


class _Branch(torch.autograd.Function):
    """The update of a layer's output by its factors; backward passes on the input's gradient and nothing else."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, second: Tensor, scaling: float, record: Callable[..., None]
    ) -> Tensor:
        down, up = first.to(x.dtype), second.to(x.dtype)
        inner = F.linear(x, down) * scaling
        ctx.save_for_backward(x, inner, down, up)
        ctx.scaling, ctx.record = scaling, record
        return F.linear(inner, up)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, inner, down, up = ctx.saved_tensors
        (gradient,) = outer
        upstream = (gradient @ up) * ctx.scaling
        ctx.record(x, inner, upstream, gradient)
        return upstream @ down, None, None, None, None

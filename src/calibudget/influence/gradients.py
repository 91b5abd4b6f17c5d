"""Linear layers with factors that, in the backward pass, hand out every example's gradients of their own factors.

The gradient of a linear map's weight is a sum of outer products over tokens, so the gradients of single examples are
sums over each example's tokens: one product for each factor and example, of tensors that a backward pass holds anyway.
No example needs a backward pass of its own, and no gradient of a batch is formed.

The direction in which one example alone would move the factors, under AdamW's state after a warm-up.

Source: Xia et al., "LESS" (2024), section 4, for the use of Adam's update in place of the gradient.

Gradients of single examples with respect to a model's factors, a batch of examples at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.errors import TrainingError
from calibudget.training.config import TrainingConfig
from calibudget.training.data import Batch, TrainingExample
from calibudget.training.layers import ADAPTER, FactorLinear
from calibudget.training.optimizer_step import Learner

#: What is sketched in place of gradients (E, n) whose first entry has a position, of the same shape, float32.
Direction = Callable[[int, Tensor], Tensor]


class Sink(Protocol):
    """What takes the gradients as they are made."""

    def add(self, start: int, gradients: Tensor) -> None:
        """Take E examples' gradients of one factor, shape (E, n), whose first entry has the position `start`."""
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
        """Each example's sum over its tokens of outer products, shape (E, m, n).

        Left and right have the shapes (1, tokens, m) and (1, tokens, n) of a packed row, or (E, T, m) and (E, T, n).
        """
        if self.index is not None and self.mask is not None:
            narrow = left.shape[-1] <= right.shape[-1]  # masking one of the two is enough
            index, mask = self.index.to(left.device), self.mask.to(left.device)
            left, right = left[0][index], right[0][index]
            left, right = (left * mask, right) if narrow else (left, right * mask)
        return torch.bmm(left.transpose(1, 2), right)


def segments_of(batch: Batch, lengths: list[int], dtype: torch.dtype) -> Segments:
    """Where a batch's examples lie."""
    if batch.starts is None:
        return Segments()
    count = torch.tensor(lengths, device=batch.starts.device)[:, None]
    places = torch.arange(max(lengths), device=batch.starts.device)
    index = batch.starts[: len(lengths), None].long() + torch.minimum(places, count - 1)
    return Segments(index=index, mask=(places < count).to(dtype)[..., None])


class Capture:
    """Joins the layers of a model to a sink that wants their gradients; idle unless it and segments are set."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.segments: Segments | None = None
        self.sink: Sink | None = None

    def record(self, starts: tuple[int, int], x: Tensor, inner: Tensor, upstream: Tensor, gradient: Tensor) -> None:
        """Form and hand on the gradients of one layer's A and B, whose first entries have the positions `starts`.

        The layer's input is x (..., tokens, in), `inner` its scaled product with A (..., tokens, r); `upstream` is the
        gradient of the input's product with A, and `gradient` that of the layer's output (..., tokens, out).
        """
        if self.segments is None or self.sink is None:
            return
        self.sink.add(starts[0], self.segments.outer(upstream, x).flatten(1).to(self.device))
        self.sink.add(starts[1], self.segments.outer(gradient, inner).flatten(1).to(self.device))


class CapturingLinear(FactorLinear):
    """`FactorLinear` whose factors' gradients go to a capture, an example at a time, by where A and B start."""

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


def capture_layers(model: nn.Module, starts_of: Callable[[str], int], device: torch.device) -> Capture:
    """Let every layer with factors hand out single examples' gradients; `starts_of` gives a parameter's first position.

    Raises:
        TrainingError: factors on a layer that isn't a plain linear one, or that shares its input with others.
    """
    capture = Capture(device)
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
        down, up = first.to(x), second.to(x)
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


def plain_update(gradients: Tensor, square: Tensor, beta1: float, beta2: float, epsilon: float) -> Tensor:
    """Adam's update from a first moment of 0 without its bias corrections, of gradients (E, n) under squares (n,)."""
    return (1.0 - beta1) * gradients / ((beta2 * square + (1.0 - beta2) * gradients.square()).sqrt() + epsilon)


def second_moments(learner: Learner) -> Tensor:
    """AdamW's second moment at every position of a learner's factors, shape (size,), float32."""
    tensors = learner.tensors()
    return torch.cat([tensors[f"{factor.factor}.exp_avg_sq"] for factor in learner.factors])


def adam_direction(square: Tensor, config: TrainingConfig, steps: int) -> Direction:
    """What turns gradients into Adam's next update, entry by entry, after so many steps of a warm-up.

    With the second moment v after t steps, the update by a gradient g is m' / (sqrt(v') + epsilon), where
    m' = (1 - beta1) g / (1 - beta1^(t+1)) and v' = (beta2 v + (1 - beta2) g^2) / (1 - beta2^(t+1)). The first moment is
    left out, so that only the example itself gives the direction. Since g stands in v' too, an entry that the warm-up
    never moved doesn't outweigh all others.

    Raises:
        TrainingError: no step was taken, so that there are no moments.
    """
    if steps < 1:
        raise TrainingError("influence needs a warm-up of at least one optimizer step, for Adam's moments")
    update = torch.compile(plain_update, dynamic=True) if square.is_cuda else plain_update
    # sqrt(v / c) + e is (sqrt(v) + e sqrt(c)) / sqrt(c), so the corrections need no pass over the entries
    root = (1.0 - config.beta2 ** (steps + 1)) ** 0.5

    def direction(start: int, gradients: Tensor) -> Tensor:
        own = square[start : start + gradients.shape[1]]
        made = update(gradients, own, config.beta1, config.beta2, config.epsilon * root)
        corrected: Tensor = made * (root / (1.0 - config.beta1 ** (steps + 1)))
        return corrected

    return direction


class ExampleGradients:
    """Hands out the gradients of single examples' mean losses at a learner's factors.

    Positions count the entries of all A factors, then those of all B factors, as `FlatFactor` lays them out; each
    factor's entries are row-major.

    Attributes:
        size: number of positions, the unused ones between factors included.
        learner: the model with its factors and the optimizer's moments.
    """

    def __init__(self, learner: Learner) -> None:
        """Let a learner's layers hand out gradients; it can't train any more.

        It was made without shared inputs, compilation, graphs and checkpointing of activations.
        """
        self.learner = learner
        first, second = learner.factors
        self.size = first.values.numel() + second.values.numel()
        starts = {**first.offsets, **{name: first.values.numel() + at for name, at in second.offsets.items()}}
        self.device = first.values.device
        self._capture = capture_layers(learner.model, starts.__getitem__, self.device)

    def __call__(self, examples: Sequence[TrainingExample], sink: Sink) -> None:
        """Send one batch through the model and its gradients to a sink, layer after layer.

        They are those of the *sum* over an example's response tokens; divided by their number, those of its mean loss.
        """
        learner = self.learner
        batch = learner.batch(examples).to(self.device)
        lengths = [example.length for example in examples]
        self._capture.segments = segments_of(batch, lengths, learner.model.dtype)
        self._capture.sink = sink
        try:
            learner.loss(batch, torch.ones((), device=self.device)).backward()  # type: ignore[no-untyped-call]
        finally:
            self._capture.segments = self._capture.sink = None

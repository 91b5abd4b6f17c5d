"""Cross-entropy over the labelled positions, a chunk of logits at a time, with the gradient made on the way.

The output head is frozen, so all that its logits are needed for is the loss and the gradient of the hidden states.
Both are made chunk by chunk in the forward pass, and logits of a whole batch never exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.errors import TrainingError
from calibudget.training.data import NO_LABEL

#: Logits that exist at once.
_CHUNK_ELEMENTS: Final = 1 << 26
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A frozen output head, and what its family does to the logits.

    Attributes:
        weight: shape (V, H).
        bias: shape (V,), or None.
        factor: what the logits are multiplied by.
        softcap: bound that they are squeezed into, or None.
    """

    weight: Tensor
    bias: Tensor | None
    factor: float
    softcap: float | None

    @property
    def is_plain(self) -> bool:
        """Whether the logits are what the weight and bias give."""
        return self.factor == 1.0 and self.softcap is None


#: `chunk_gradient` or a compiled form of it.
ChunkGradient = Callable[[Tensor, Tensor, "Tensor | None", Tensor, Tensor], tuple[Tensor, Tensor]]


def find_head(model: Any) -> Head:
    """The output head of a causal language model.

    Raises:
        TrainingError: the model does more to its logits than is known here.
    """
    layer = model.get_output_embeddings()
    config = model.config.get_text_config()
    head = Head(
        weight=layer.weight,
        bias=getattr(layer, "bias", None),
        factor=(getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0),
        softcap=getattr(config, "final_logit_softcapping", None),
    )
    _check_head(model, head)
    return head


@torch.no_grad()
def _check_head(model: Any, head: Head) -> None:
    """Compare the head with the model's own logits on four tokens."""
    ids = torch.arange(4, device=model.device)[None]
    where = head.weight.device
    if any(parameter.is_meta for parameter in model.parameters()):
        raise TrainingError(
            "some of the model's layers wait in the machine's memory, and gradients need them on a GPU; take more or "
            "larger ones, or dtype: nf4"
        )
    own = model(input_ids=ids, use_cache=False).logits.float().to(where)
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state.to(where)
    found = _shaped(F.linear(hidden, head.weight, head.bias).float(), head)
    if not torch.allclose(own, found, atol=_TOLERANCE.get(model.dtype, 0.1), rtol=0.02):
        raise TrainingError(
            f"models of the family {model.config.model_type!r} change their logits in a way that training here "
            "doesn't know; use another model, or another trainer for this one"
        )


def response_loss(
    hidden: Tensor,
    rows: Tensor,
    head: Head,
    labels: Tensor,
    scale: Tensor,
    plain: ChunkGradient | None = None,
) -> Tensor:
    """Sum of the labels' cross-entropies times `scale`, a float32 scalar, differentiable in `hidden` alone.

    Of last hidden states (n, H), `rows` predict the labels, each once but for those without a label; both have shape
    (L,), int64, and a label is an id or `NO_LABEL`, which doesn't count. The scale is one over the labels (or the
    examples) of the whole effective batch: then the sum over all batches of a step is the mean over its tokens (or
    examples), however they are parted (paper 2.4). `plain` is a compiled form of `chunk_gradient`.
    """
    loss: Tensor = _ResponseLoss.apply(  # type: ignore[no-untyped-call]
        hidden, rows, head, labels, scale, plain or chunk_gradient
    )
    return loss


def chunk_gradient(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of some labelled positions under a plain head.

    Hidden states (n, H), the head's weight (V, H) and bias (V,), labels (n,) and a scalar scale give the sum of the
    scaled losses, a scalar in float32, and its gradient, of the shape and precision of `hidden`.
    """
    loss, gradient = _cross_entropy(F.linear(hidden, weight, bias).float(), labels, scale)
    return loss, gradient.to(hidden.dtype) @ weight


def _shaped_chunk_gradient(hidden: Tensor, head: Head, labels: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """`chunk_gradient` under a head that shapes its logits."""
    scores = _shaped(F.linear(hidden, head.weight, head.bias).float(), head)
    loss, gradient = _cross_entropy(scores, labels, scale)
    if head.softcap is not None:
        gradient = gradient * (1.0 - (scores / head.softcap) ** 2)
    return loss, (gradient * head.factor).to(hidden.dtype) @ head.weight


def _cross_entropy(scores: Tensor, labels: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the scaled losses of scores (n, V), float32, and their gradient."""
    counted = (labels != NO_LABEL)[:, None]
    wanted = labels.clamp(min=0)[:, None]
    normaliser = scores.logsumexp(dim=-1, keepdim=True)
    losses = (normaliser - scores.gather(1, wanted)) * counted
    places = torch.arange(scores.shape[1], device=scores.device)
    gradient = ((scores - normaliser).exp() - (places == wanted).float()) * (counted * scale)
    return losses.sum() * scale, gradient


def _shaped(logits: Tensor, head: Head) -> Tensor:
    scores = logits * head.factor
    return scores if head.softcap is None else torch.tanh(scores / head.softcap) * head.softcap


class _ResponseLoss(torch.autograd.Function):
    """Loss forward; the hidden states' gradient is ready when backward asks for it."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, rows: Tensor, head: Head, labels: Tensor, scale: Tensor, plain: ChunkGradient
    ) -> Tensor:
        # rows of logits that are made at once, a multiple of 128
        size = max(128, _CHUNK_ELEMENTS // head.weight.shape[0] // 128 * 128)
        gradients = [torch.zeros((0, hidden.shape[1]), dtype=hidden.dtype, device=hidden.device)]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            chunk = hidden[rows[part]]
            if head.is_plain:
                loss, gradient = plain(chunk, head.weight, head.bias, labels[part], scale)
            else:
                loss, gradient = _shaped_chunk_gradient(chunk, head, labels[part], scale)
            total += loss
            gradients.append(gradient)
        ctx.save_for_backward(torch.cat(gradients), rows)
        ctx.shape = hidden.shape
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        gradient, rows = ctx.saved_tensors
        everywhere = torch.zeros(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        # rows given twice have no label and a gradient of zero, so it doesn't matter which one is written last
        everywhere.index_copy_(0, rows, gradient * outer[0].to(gradient.dtype))
        return everywhere, None, None, None, None, None

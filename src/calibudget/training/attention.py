"""Causal attention inside each of the sequences that lie end to end in one row, under transformers' own models."""

from __future__ import annotations

import inspect
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None  # type: ignore[assignment]

#: Names under which the functions stand in transformers' registry.
_KERNEL: Final = "calibudget_packed"
_MASK: Final = "calibudget_packed_mask"

_TELLS_GROUPS: Final = varlen_attn is not None and "enable_gqa" in inspect.signature(varlen_attn).parameters
_LARGEST_HEAD: Final = 256


def has_kernel(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether torch's variable-length kernel runs on a device."""
    return (
        varlen_attn is not None
        and device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and dtype == torch.bfloat16
        and head_size <= _LARGEST_HEAD
    )


def register(*, kernel: bool) -> str:
    """Make packed attention known to transformers.

    Args:
        kernel: use the variable-length kernel; otherwise a mask over all pairs of tokens, which runs anywhere.

    Returns:
        The name to give to `set_attn_implementation`.
    """
    from transformers import AttentionInterface

    name = _KERNEL if kernel else _MASK
    AttentionInterface.register(name, kernel_attention if kernel else mask_attention)
    return name


def packed_layout(starts: Tensor, longest: int) -> dict[str, Any]:
    """What transformers' models hand on to their attention, under its own names.

    Args:
        starts: where sequences start, and the end of the last, shape (S + 1,), int32.
        longest: most tokens of one sequence.
    """
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
    groups = {"enable_gqa": True} if _TELLS_GROUPS and query.shape[1] != key.shape[1] else {}
    output = varlen_attn(
        queries,
        keys,
        values,
        cu_seq_lens_q,
        cu_seq_lens_q,
        max_length_q,
        max_length_q,
        scale=scaling,
        # (-1, 0) is what the kernel takes for plainly causal
        window_size=(-1 if sliding_window is None else sliding_window - 1, 0),
        **groups,  # type: ignore[arg-type]
    )
    return cast(Tensor, output)[None], None


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

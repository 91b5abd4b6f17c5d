"""torch's variable-length attention kernel, where there is one."""

from __future__ import annotations

import inspect
from typing import Final, cast

import torch
from torch import Tensor

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None  # type: ignore[assignment]

_PARAMETERS: Final = frozenset() if varlen_attn is None else frozenset(inspect.signature(varlen_attn).parameters)
_LARGEST_HEAD: Final = 256


def has_kernel(states: Tensor) -> bool:
    """Whether the kernel takes states (…, D) of this device, dtype and head size."""
    return (
        "window_size" in _PARAMETERS
        and states.is_cuda
        and states.dtype in (torch.bfloat16, torch.float16)
        and states.shape[-1] <= _LARGEST_HEAD
        and torch.cuda.get_device_capability(states.device) >= (8, 0)
    )


class Spans:
    """Where sequences lie in one row of tokens.

    Attributes:
        ends: first token of each sequence and the end of the last, shape (S + 1,), int32.
        longest: most tokens of one sequence.
    """

    __slots__ = ("ends", "longest")

    def __init__(self, lengths: list[int], device: torch.device) -> None:
        ends = [0, *(sum(lengths[: i + 1]) for i in range(len(lengths)))]
        self.ends = torch.tensor(ends, dtype=torch.int32, device=device)
        self.longest = max(lengths)


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Spans,
    keys: Spans,
    *,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Causal attention inside each sequence, aligned at its end where it has more keys than queries.

    Args:
        query: shape (T, H, D).
        key: shape (K, G, D).
        value: shape (K, G, D).
        queries: the sequences' queries.
        keys: the sequences' keys.
        scale: factor of the scores; None is the head size to the power -1/2.
        window: tokens that a token sees, itself included; None for all.

    Returns:
        The output, shape (T, H, D).
    """
    options: dict[str, object] = {"scale": scale, "window_size": (-1 if window is None else window - 1, 0)}
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1 and "enable_gqa" in _PARAMETERS:
        options["enable_gqa"] = True
    elif repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    output = varlen_attn(query, key, value, queries.ends, keys.ends, queries.longest, keys.longest, **options)  # type: ignore[arg-type]
    return cast(Tensor, output)

"""Attention over sequences laid end to end, and over cached ones, inside transformers' own models.

It runs on torch's variable-length kernel where there is one. transformers lets an attention function be registered by
name; everything else of a model (projections, positions, norms, experts) stays its own code. The function here asks
the layout that is in force for the answer: `Packed` while prompts and responses are read, a cache of `kv_cache` while
tokens are generated.

Shapes: B sequences, T tokens laid end to end, H query heads, G key/value heads, D head size, L cached positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.lm.prefix_tree import Block, Part

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None  # type: ignore[assignment]
_PARAMETERS: Final = frozenset() if varlen_attn is None else frozenset(inspect.signature(varlen_attn).parameters)
_LARGEST_HEAD: Final = 256


def has_kernel(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether torch's variable-length kernel runs here."""
    return (
        "window_size" in _PARAMETERS
        and device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and head_size <= _LARGEST_HEAD
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def kernel_takes(states: Tensor) -> bool:
    """Whether the kernel takes states (…, D)."""
    return has_kernel(states.device, states.dtype, states.shape[-1])


def onto(values: Tensor, device: torch.device) -> Tensor:
    """Values on another device, without waiting for what a GPU still has to do."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


class Spans(NamedTuple):
    """Where sequences lie in one row of tokens.

    Attributes:
        ends: first token of each sequence and the end of the last, shape (S + 1,), int32.
        longest: most tokens of one sequence.
    """

    ends: Tensor
    longest: int

    @classmethod
    def of(cls, lengths: list[int], device: torch.device) -> Spans:
        """Sequences of these lengths, end to end."""
        return cls(onto(torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), device), max(lengths))

    def starting_at(self, rows: Tensor) -> Spans:
        """The given sequences, shape (S',), int64, where they lie; only their beginnings still mean something."""
        return self._replace(ends=torch.cat([self.ends[rows], self.ends[-1:]]))

    def on(self, device: torch.device) -> Spans:
        """The same on another device."""
        return self._replace(ends=self.ends.to(device))


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    *,
    scale: float | None,
    window: int | None,
    used: Tensor | None = None,
) -> Tensor:
    """Causal attention inside each sequence, aligned at its end where it has more keys than queries.

    Of queries (T, H, D) and keys and values (K, G, D) the output has shape (T, H, D). `starts` are where queries and
    where keys start, and the end of the last, each of shape (S + 1,), int32; `longest` the most queries and the most
    keys of one sequence. The scale is None for the head size to the power -1/2, the window (tokens that a token sees,
    itself included) for all. `used` keys of each sequence count, the rest being room for more, shape (S,), int32.
    """
    if used is not None:
        # varlen_attn itself takes `seqused_k` from torch 2.12 on; this is the operator under it
        left, right = (-1, -1) if window is None else (window - 1, 0)
        options: dict[str, object] = {"window_size_left": left, "window_size_right": right, "seqused_k": used}
        attend = torch.ops.aten._flash_attention_forward
        return cast(Tensor, attend(query, key, value, *starts, *longest, 0.0, False, False, scale=scale, **options)[0])
    options = {"scale": scale, "window_size": (-1 if window is None else window - 1, 0)}
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1 and "enable_gqa" in _PARAMETERS:
        options["enable_gqa"] = True
    elif repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    return cast(Tensor, varlen_attn(query, key, value, *starts, *longest, **options))  # type: ignore[arg-type]


#: Name under which the function stands in transformers' registry.
ATTENTION: Final = "calibudget"
#: Tokens at which a block of parts is full, the filling counted.
_BLOCK_TOKENS: Final = 2**16


class Layout(Protocol):
    """How the tokens of one forward lie, and so which of them each may see."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """Attention output (B, T, H, D) of query (B, H, T, D) over key and value (B, G, T, D)."""
        ...


class Bounds(NamedTuple):
    """A layer's own attention settings: scale, sliding window (tokens seen, itself included) and score soft cap."""

    scale: float | None
    window: int | None
    softcap: float | None


_LAYOUT: ContextVar[Layout] = ContextVar("calibudget_attention_layout")


@contextmanager
def attending(model: Any, layout: Layout) -> Iterator[None]:
    """While the block runs, the model's attention is this module's, over the given layout."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)
    before = model.config._attn_implementation
    token = _LAYOUT.set(layout)
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        _LAYOUT.reset(token)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    unknown = sorted(name for name in ("s_aux", "position_bias", "head_mask") if others.get(name) is not None)
    if unknown or attention_mask is not None:
        raise NotImplementedError(f"attention with {', '.join(unknown) or 'a mask of its own'}")
    bounds = Bounds(scaling, sliding_window, softcap)
    return _LAYOUT.get().attend(module.layer_idx, query, key, value, bounds), None


class Packed:
    """The parts of a tree of sequences end to end in one row; each sees itself and the parts that it continues.

    Attributes:
        device: where it all is.
        starts: first token of each part.
        ends: for each example the part that ends it.
        keys: per layer the keys of all tokens, shape (G, T, D); `values` likewise.
        softcapped: whether a layer's scores are capped.
    """

    def __init__(self, parts: Sequence[Part], ends: Sequence[int], device: torch.device, *, keep: bool = True) -> None:
        self.parts = parts
        self.ends = ends
        self.starts = [0, *accumulate(len(part.ids) for part in parts)][:-1]
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.device = device
        self.softcapped = False
        self._keep = keep
        self._masks: dict[tuple[int, int, int | None], Tensor] = {}
        self._elsewhere: dict[torch.device, Packed] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """See `Layout`; B is 1."""
        self.softcapped |= bounds.softcap is not None
        if self._keep:
            self.keys[layer], self.values[layer] = key[0], value[0]
        return self.on(query.device)._attend(query, key, value, bounds)

    def on(self, device: torch.device) -> Packed:
        """The same parts with what attention needs on another card, where a model lies over several."""
        if device == self.device or device.type == "cpu":
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = Packed(self.parts, self.ends, device, keep=False)
        return self._elsewhere[device]

    @classmethod
    def joined(cls, layouts: Sequence[Packed]) -> Packed:
        """One layout of several that were read one after another; their keys and values go over to it."""
        if len(layouts) == 1:
            return layouts[0]
        parts: list[Part] = []
        ends: list[int] = []
        for one in layouts:
            before = len(parts)
            ends += [before + end for end in one.ends]
            parts += [replace(own, parent=None if own.parent is None else before + own.parent) for own in one.parts]
        whole = cls(parts, ends, layouts[0].device)
        whole.softcapped = any(one.softcapped for one in layouts)
        for layer in list(layouts[0].keys):
            whole.keys[layer] = torch.cat([one.keys.pop(layer) for one in layouts], dim=1)
            whole.values[layer] = torch.cat([one.values.pop(layer) for one in layouts], dim=1)
        return whole

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        if bounds.softcap is None and kernel_takes(query):
            return self._attend_at_once(query, key, value, bounds)
        return (self._attend_in_blocks if query.is_cuda else self._attend_by_parts)(query, key, value, bounds)

    def prepare(self) -> None:
        """Bring what attention needs onto the device."""
        if self.device.type == "cuda":
            _ = self.spans

    def _attend_by_parts(self, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """One part after another, which wastes nothing; for a CPU, to which a call costs little."""
        output = torch.empty_like(query)
        for number, part in enumerate(self.parts):
            own = slice(self.starts[number], self.starts[number] + len(part.ids))
            output[:, :, own] = dense_attention(
                query[:, :, own],
                self._seen(key, number),
                self._seen(value, number),
                self._mask(len(part.ids), part.depth, bounds.window),
                bounds,
            )
        return output.transpose(1, 2)

    def _attend_in_blocks(self, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """Many parts in one call, filled up to equal lengths; for a GPU without the kernel, where calls cost most."""
        output = torch.empty_like(query)
        for block in self._blocks:
            found = dense_attention(
                query[0][:, block.queries].transpose(0, 1),
                key[0][:, block.keys].transpose(0, 1),
                value[0][:, block.keys].transpose(0, 1),
                block.mask(bounds.window),
                bounds,
            )
            output[0][:, block.queries[block.real]] = found.transpose(0, 1)[:, block.real]
        return output.transpose(1, 2)

    @cached_property
    def _blocks(self) -> list[Block]:
        lengths = [part.depth + len(part.ids) for part in self.parts]
        order = sorted(range(len(self.parts)), key=lambda number: lengths[number])
        blocks: list[list[int]] = [[]]
        for number in order:  # the longest of a block is its last
            if len(blocks[-1]) * lengths[number] >= _BLOCK_TOKENS:
                blocks.append([])
            blocks[-1].append(number)
        return [
            Block(
                [self.tokens(number) for number in block], [self.parts[number].depth for number in block], self.device
            )
            for block in blocks
        ]

    def _attend_at_once(self, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        queries, keys, gather = self.spans
        own_query, own_key, own_value = (states[0].transpose(0, 1) for states in (query, key, value))
        if gather is not None:
            own_key, own_value = own_key[gather], own_value[gather]
        starts, longest = (queries.ends, keys.ends), (queries.longest, keys.longest)
        return varlen_attention(
            own_query, own_key, own_value, starts, longest, scale=bounds.scale, window=bounds.window
        )[None]

    @cached_property
    def spans(self) -> tuple[Spans, Spans, Tensor | None]:
        """Where queries and keys lie for the kernel, and the tokens whose keys they are (None: just as they lie)."""
        queries = Spans.of([len(part.ids) for part in self.parts], self.device)
        if all(part.parent is None for part in self.parts):
            return queries, queries, None
        tokens = [self.tokens(number) for number in range(len(self.parts))]
        gather = onto(torch.tensor([i for part in tokens for i in part]), self.device)
        return queries, Spans.of([len(part) for part in tokens], self.device), gather

    def tokens(self, number: int) -> list[int]:
        """Where the tokens lie in the row that a part continues and its own, in their order."""
        return [i for piece in self._pieces(number) for i in range(piece.start, piece.stop)]

    def _pieces(self, number: int) -> list[slice]:
        part, start = self.parts[number], self.starts[number]
        before = [] if part.parent is None else self._pieces(part.parent)
        return [*before, slice(start, start + len(part.ids))]

    def _seen(self, states: Tensor, number: int) -> Tensor:
        pieces = [states[..., piece, :] for piece in self._pieces(number)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-2)

    def _mask(self, length: int, before: int, window: int | None) -> Tensor | None:
        """What each of `length` tokens sees of itself and `before` earlier ones; None is plain causal."""
        narrow = window is not None and window < before + length
        if not narrow and not before:
            return None
        key = (length, before, window if narrow else None)
        if key not in self._masks:
            seen = torch.ones(length, before + length, dtype=torch.bool, device=self.device).tril(before)
            self._masks[key] = seen.triu(before - window + 1) if narrow and window is not None else seen
        return self._masks[key]


def dense_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bounds: Bounds) -> Tensor:
    """Attention of (B, H, T, D) over (B, G, S, D); without a mask it is causal over equal lengths."""
    if bounds.softcap is not None:
        return _softcapped(query, key, value, mask, bounds.scale, bounds.softcap)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=bounds.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _softcapped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, softcap: float
) -> Tensor:
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1, dtype=torch.float32)
    return weights.to(query.dtype) @ value

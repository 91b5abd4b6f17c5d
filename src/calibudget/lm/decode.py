"""Greedy decoding from where the model first disagrees with the reference, over the forward's keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from calibudget.lm.attention import Packed, Ragged, attending
from calibudget.lm.encoding import Encoded

#: Positions that a cache gains when it is full.
_GROWTH: Final = 64
#: Rows are dropped from the batch once this share of it has ended.
_ENDED_SHARE: Final = 0.25
#: How often at most a text is looked at for an early end.
_LOOKS: Final = 32

#: Says of the ids generated so far whether whatever follows can't change their answer.
IsFinal = Callable[[Sequence[int]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """One example to be decoded.

    Attributes:
        example: its ids.
        part: its part of the packed layout.
        start: ids generated already: the agreed part of the reference and the model's own next choice.
        limit: most ids to generate, those of `start` included.
        is_final: early end, or None for none.
    """

    example: Encoded
    part: int
    start: tuple[int, ...]
    limit: int
    is_final: IsFinal | None = None


@torch.inference_mode()
def continue_greedily(
    model: Any, layout: Packed, continuations: Sequence[Continuation], stop_ids: frozenset[int]
) -> list[tuple[int, ...]]:
    """Decode all continuations in one batch, each until a stop id, its limit or its early end.

    Args:
        model: the model that made `layout`.
        layout: keys and values of the examples' prompts and agreed responses.
        continuations: what to decode; their `start` holds no stop id and is shorter than the limit.
        stop_ids: ids that end a text; they are not returned.

    Returns:
        The ids of each, those of `start` included.
    """
    state = _gather(layout, continuations)
    texts = [list(continuation.start) for continuation in continuations]
    active = list(range(len(continuations)))
    ended: set[int] = set()
    while len(ended) < len(active):
        if len(ended) >= _ENDED_SHARE * len(active):
            kept = [row for row, index in enumerate(active) if index not in ended]
            state.keep(torch.tensor(kept, device=model.device))
            active, ended = [active[row] for row in kept], set()
        chosen = _step(model, state, [texts[index][-1] for index in active])
        for index, token in zip(active, chosen, strict=True):
            if index not in ended and _ends(continuations[index], texts[index], token, stop_ids):
                ended.add(index)
    return [tuple(text) for text in texts]


def _ends(continuation: Continuation, text: list[int], token: int, stop_ids: frozenset[int]) -> bool:
    """Add a generated id to its text and say whether the text ends there."""
    if token in stop_ids:
        return True
    text.append(token)
    if len(text) >= continuation.limit:
        return True
    looks = len(text) % max(continuation.limit // _LOOKS, 1) == 0
    return looks and continuation.is_final is not None and continuation.is_final(text)


def _step(model: Any, state: Ragged, ids: list[int]) -> list[int]:
    """Feed each row its newest id and return the model's next choice."""
    device = model.device
    longest = int(state.lengths.max())
    if longest >= state.room:
        state.widen(longest + _GROWTH)
    with attending(model, state):
        logits = model(
            input_ids=torch.tensor(ids, device=device)[:, None],
            position_ids=state.lengths[:, None].clone(),
            use_cache=False,
            logits_to_keep=1,
        ).logits[:, -1]
    state.advance()
    chosen: list[int] = logits.argmax(dim=-1).tolist()
    return chosen


def _gather(layout: Packed, continuations: Sequence[Continuation]) -> Ragged:
    """A ragged cache of each example's prompt and agreed response."""
    lengths = [len(one.example.prompt_ids) + len(one.start) - 1 for one in continuations]
    room = max(lengths) + min(_GROWTH, max(one.limit for one in continuations))
    keys: dict[int, Tensor] = {}
    values: dict[int, Tensor] = {}
    for layer in layout.keys:
        pairs = [layout.sequence(layer, one.part) for one in continuations]
        for states, position in ((keys, 0), (values, 1)):
            first = pairs[0][position]
            states[layer] = first.new_zeros(len(pairs), first.shape[0], room, first.shape[2])
            for row, length in enumerate(lengths):
                states[layer][row, :, :length] = pairs[row][position][:, :length]
    device = next(iter(keys.values())).device
    return Ragged(keys, values, torch.tensor(lengths, device=device))

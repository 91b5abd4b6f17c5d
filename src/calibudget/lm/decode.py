"""Greedy decoding from where the model first disagrees with the reference, over the forward's keys and values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from calibudget.lm.attention import Packed, attending
from calibudget.lm.encoding import Encoded
from calibudget.lm.forward import doubtful_choices
from calibudget.lm.kv_cache import Cached, take_over
from calibudget.lm.placement import parts_of

#: Tokens between two looks at what was generated; a GPU goes on meanwhile.
_STRIDE: Final = {"cpu": 1, "cuda": 4, "mps": 4, "xpu": 4}
#: Texts longer than this are looked at for an early end an eighth as often.
_SHORT: Final = 64
#: Rows are dropped from the batch once this share of it has ended; on a GPU that pays only before many more steps.
_ENDED_SHARE: Final = {"cpu": 0.25, "cuda": 0.5, "mps": 0.5, "xpu": 0.5}

#: Says of the ids generated so far whether whatever follows can't change their answer.
IsFinal = Callable[[Sequence[int]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """One example to be decoded.

    Attributes:
        example: its ids.
        part: the part of the packed layout that ends it.
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
    model: Any,
    layout: Packed,
    continuations: Sequence[Continuation],
    stop_ids: frozenset[int],
    *,
    release: bool = False,
) -> list[tuple[int, ...] | None]:
    """Decode all continuations in one batch, each until a stop id, its limit or its early end.

    `layout` is what the model made of their examples; with `release` its keys and values may be given up, since nothing
    else is decoded from them. A continuation's `start` holds no stop id and is shorter than its limit.

    Returns:
        The ids of each, those of `start` included and without a stop id; None where float32 met a near tie, which one
        batch may break otherwise than another, or where a choice was among logits that are no numbers.
    """
    device = model.device.type
    texts = [list(continuation.start) for continuation in continuations]
    stepper = _Stepper(model, _cache(layout, continuations, release=release), [text[-1] for text in texts])
    active = list(range(len(continuations)))
    ended: set[int] = set()
    doubtful: set[int] = set()
    made: deque[tuple[list[int], _Tokens]] = deque()
    while len(ended) < len(continuations):
        # a GPU works on while its last tokens are looked at
        ahead = device == "cuda" and _rest(continuations, texts, active, ended) > _STRIDE[device]
        while len(made) < 1 + ahead:
            made.append((active, stepper.run(_STRIDE[device])))
        rows, tokens = made.popleft()
        for index, choices in zip(rows, tokens.read(), strict=True):
            if index in ended:
                continue
            doubt = next((i for i, (_, doubted) in enumerate(choices) if doubted), len(choices))
            if _ends(continuations[index], texts[index], [i for i, _ in choices[:doubt]], stop_ids, _STRIDE[device]):
                ended.add(index)
            elif doubt < len(choices):
                ended.add(index)
                doubtful.add(index)
        left = [row for row, index in enumerate(active) if index not in ended]
        pays = device == "cpu" or _rest(continuations, texts, active, ended) > _SHORT
        if pays and 0 < len(left) <= (1 - _ENDED_SHARE[device]) * len(active):
            stepper.keep(left)
            active = [active[row] for row in left]
    return [None if index in doubtful else tuple(text) for index, text in enumerate(texts)]


def _rest(continuations: Sequence[Continuation], texts: list[list[int]], active: list[int], ended: set[int]) -> int:
    """Most tokens that are still to come of one example."""
    return max((continuations[i].limit - len(texts[i]) for i in active if i not in ended), default=0)


def _ends(
    continuation: Continuation, text: list[int], tokens: list[int], stop_ids: frozenset[int], stride: int
) -> bool:
    """Add generated ids to their text and say whether it ends with one of them."""
    for token in tokens:
        if token in stop_ids:
            return True
        text.append(token)
        if len(text) >= continuation.limit:
            return True
        looks = len(text) % (stride if len(text) <= _SHORT else 8 * stride) == 0
        if looks and continuation.is_final is not None and continuation.is_final(text):
            return True
    return False


class _Tokens:
    """Ids of each row and whether each is in doubt, on their way from the device."""

    def __init__(self, steps: Sequence[Tensor]) -> None:
        """Take one tensor a step, shape (B, 2), int64."""
        found = torch.stack(list(steps), dim=1)
        self._copied: Any = None
        if found.is_cuda:
            self._found = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            self._found.copy_(found, non_blocking=True)
            self._copied = torch.Event(found.device)
            self._copied.record()
        else:
            self._found = found.cpu()

    def read(self) -> list[list[tuple[int, bool]]]:
        """Wait for them."""
        if self._copied is not None:
            self._copied.synchronize()
        return [[(token, bool(doubt)) for token, doubt in row] for row in self._found.tolist()]


class _Stepper:
    """Feeds each row its newest id, step after step; on a GPU the step is captured once and replayed."""

    def __init__(self, model: Any, state: Cached, ids: list[int]) -> None:
        self._model = model
        self._state = state
        self._ids = torch.tensor(ids, device=model.device)[:, None]
        self._doubts = torch.zeros_like(self._ids, dtype=torch.bool)
        self._longest = int(state.lengths.max())
        self._highest = int(state.ceilings.max())
        self._graph: Any = None
        self._steps = 0

    def run(self, steps: int) -> _Tokens:
        """The next ids of each row, and whether each is in doubt."""
        chosen = []
        for _ in range(steps):
            self._step()
            chosen.append(torch.cat([self._ids, self._doubts.to(self._ids)], dim=1))
        return _Tokens(chosen)

    def keep(self, rows: list[int]) -> None:
        """Go on with these rows only."""
        kept = torch.tensor(rows, device=self._ids.device)
        self._state.keep(kept)
        self._ids, self._doubts = self._ids[kept], self._doubts[kept]
        self._graph, self._steps = None, 0

    def _step(self) -> None:
        self._state.make_room(self._longest, self._highest)
        self._longest = min(self._longest + 1, self._highest)
        if self._steps == 1 and self._ids.is_cuda and parts_of(self._model) is None:
            self._graph = self._captured()
        self._steps += 1
        if self._graph is None:
            self._forward()
        else:
            self._graph.replay()

    def _forward(self) -> None:
        with attending(self._model, self._state):
            logits = self._model(
                input_ids=self._ids,
                position_ids=self._state.lengths[:, None].clone(),
                use_cache=False,
                logits_to_keep=1,
            ).logits[:, -1]
        self._state.advance()
        self._ids.copy_(logits.argmax(dim=-1, keepdim=True))
        self._doubts.copy_(doubtful_choices(logits)[:, None])

    def _captured(self) -> Any:
        """The step as a CUDA graph, None where the model's code can't be captured (it asks the GPU something)."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._forward()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return graph


def _cache(layout: Packed, continuations: Sequence[Continuation], *, release: bool) -> Cached:
    """Each example's prompt and agreed response, but for the newest id, which is fed first."""
    tokens = [layout.tokens(one.part)[: len(one.example.prompt_ids) + len(one.start) - 1] for one in continuations]
    ceilings = [len(one.example.prompt_ids) + one.limit - 1 for one in continuations]
    return take_over(layout, tokens, ceilings, release=release)

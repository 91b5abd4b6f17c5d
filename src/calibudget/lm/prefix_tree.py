"""What prompts have in common at their beginning, read once: the tokens of a batch as a tree.

A batch's prompts share the template's opening, those of one source its question's wording, and so on. Each run of
tokens that several examples share is a part; what is an example's own is a part that continues it.

Parts of a row of tokens side by side, filled up to equal lengths, for attention without a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from calibudget.lm.encoding import Encoded

#: Tokens that a shared part must save, since every part costs a little too.
_WORTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of tokens.

    Attributes:
        ids: its tokens, at least one.
        parent: the part that it continues, an earlier one; None where it is a beginning.
        depth: tokens before it.
    """

    ids: tuple[int, ...]
    parent: int | None
    depth: int


def grow(examples: Sequence[Encoded]) -> tuple[list[Part], list[int]]:
    """The parts of a batch, parents first, and for each example the part that ends it.

    Only prompts share, and each example keeps at least the last token of its prompt to itself, since that is where
    its response begins. The last response token is left out: nothing follows it.
    """
    parts: list[Part] = []
    ends = [0] * len(examples)
    waiting: list[tuple[list[int], int, int | None]] = [(list(range(len(examples))), 0, None)]
    while waiting:
        group, depth, parent = waiting.pop()
        shared = _shared([examples[i].prompt_ids for i in group])
        if (shared - depth) * (len(group) - 1) >= _WORTH:
            parts.append(Part(ids=examples[group[0]].prompt_ids[depth:shared], parent=parent, depth=depth))
            depth, parent = shared, len(parts) - 1
        branches: dict[int, list[int]] = {}
        for i in group:
            branches.setdefault(examples[i].prompt_ids[shared], []).append(i)
        for branch in branches.values():
            if 1 < len(branch) < len(group):
                waiting.append((branch, depth, parent))
                continue
            for i in branch:
                ids = examples[i].prompt_ids + examples[i].response_ids[:-1]
                parts.append(Part(ids=ids[depth:], parent=parent, depth=depth))
                ends[i] = len(parts) - 1
    return parts, ends


def _shared(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with, the last of the shortest left out."""
    shortest = min(map(len, prompts)) - 1
    first, last = (pick(prompt[:shortest] for prompt in prompts) for pick in (min, max))
    return next((i for i in range(shortest) if first[i] != last[i]), shortest)


#: A place that no token looks at.
_NOWHERE = 2**30


class Block:
    """Where P parts' own tokens and all tokens that they see lie in the row.

    Attributes:
        queries: each part's own tokens, filled up with its last one, shape (P, Q), int64.
        keys: the tokens that it continues and its own, filled up with the first of the row, shape (P, K), int64.
        real: which queries are no filling, shape (P, Q), bool.
    """

    def __init__(self, tokens: Sequence[Sequence[int]], depths: Sequence[int], device: torch.device) -> None:
        keys, counts = max(map(len, tokens)), [len(own) - depth for own, depth in zip(tokens, depths, strict=True)]
        steps = range(max(counts))
        own = [(ids[depth:], count) for ids, depth, count in zip(tokens, depths, counts, strict=True)]
        self.queries = torch.tensor([[ids[min(i, count - 1)] for i in steps] for ids, count in own], device=device)
        self.keys = torch.tensor([[*ids, *[0] * (keys - len(ids))] for ids in tokens], device=device)
        self.real = torch.tensor([[i < count for i in steps] for count in counts], device=device)
        seen_from = [[depth + min(i, count - 1) for i in steps] for depth, count in zip(depths, counts, strict=True)]
        places = [[*range(len(ids)), *[_NOWHERE] * (keys - len(ids))] for ids in tokens]
        self._seen_from = torch.tensor(seen_from, device=device)[:, :, None]
        self._places = torch.tensor(places, device=device)[:, None, :]
        self._masks: dict[int | None, Tensor] = {}

    def mask(self, window: int | None) -> Tensor:
        """Which keys each query sees, shape (P, 1, Q, K), bool; with a window only so many, itself included."""
        if window not in self._masks:
            seen = self._places <= self._seen_from
            self._masks[window] = (seen if window is None else seen & (self._places > self._seen_from - window))[
                :, None
            ]
        return self._masks[window]

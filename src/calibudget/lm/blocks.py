"""Parts of a row of tokens side by side, filled up to equal lengths, for attention without a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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

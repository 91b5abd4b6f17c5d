"""Keys and values that decoding goes on from: of sequences of different lengths, one new token each at a time.

`Filled` gives every sequence the same room, which runs anywhere. `Snug` lays the sequences end to end, each with room
for its own tokens, for torch's variable-length kernel: nothing is held or read for filling.

Shapes: B sequences, H query heads, G key/value heads, D head size, L cached positions, N positions of all sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses

from calibudget.lm.attention import Bounds, Packed, Spans, dense_attention, kernel_takes, onto, varlen_attention

#: Positions that a cache gains on CPU when it is full; on a GPU it has its final size from the start.
_GROWTH: Final = 64


def take_over(layout: Packed, tokens: Sequence[Sequence[int]], ceilings: Sequence[int], *, release: bool) -> Cached:
    """The cache that decoding goes on from, its sequences in the order of `tokens`.

    These say of each sequence where in the layout its tokens lie, in their order; `ceilings` are the most positions
    that each may reach. With `release` the layout gives up its keys and values layer by layer, so that they are never
    held twice.
    """
    snug = not layout.softcapped and all(kernel_takes(states) for states in layout.keys.values())
    return (Snug if snug else Filled)(layout, tokens, ceilings, release=release)


class Cached(ABC):
    """One new token for each of B sequences, over their cached keys and values; a `Layout`.

    Attributes:
        lengths: positions already cached of each sequence, shape (B,), int64; changed in place.
        ceilings: most positions that each may reach, shape (B,), int64.
        keys: per layer; `values` likewise.
    """

    def __init__(
        self, layout: Packed, tokens: Sequence[Sequence[int]], ceilings: Sequence[int], *, release: bool
    ) -> None:
        self.lengths = torch.tensor([len(own) for own in tokens], device=layout.device)
        self.ceilings = torch.tensor(ceilings, device=layout.device)
        #: What follows from the lengths, by what it is and where; made anew when they change.
        self._derived: dict[object, Tensor] = {}
        found = self._found(tokens, ceilings)
        sources = {device: onto(found, device) for device in {states.device for states in layout.keys.values()}}

        def moved(states: dict[int, Tensor]) -> dict[int, Tensor]:
            take = states.pop if release else states.__getitem__
            return {layer: self._moved(own := take(layer), sources[own.device]) for layer in list(states)}

        self.keys, self.values = moved(layout.keys), moved(layout.values)

    @abstractmethod
    def _found(self, tokens: Sequence[Sequence[int]], ceilings: Sequence[int]) -> Tensor:
        """For each place of the cache, the token of the layout that it takes over; 0 where it takes none."""

    @abstractmethod
    def _moved(self, states: Tensor, found: Tensor) -> Tensor:
        """A layer's part of the cache, from the layout's states (G, T, D)."""

    @abstractmethod
    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """See `Layout`; T is 1."""

    def make_room(self, longest: int, highest: int) -> None:  # noqa: B027 - only a cache that grows has to
        """Be ready for one more position where the longest sequence has so many and may reach so many."""

    def advance(self) -> None:
        """Count the token that the last forward cached; a sequence at its ceiling stays there, writing over its end."""
        torch.minimum(self.lengths + 1, self.ceilings, out=self.lengths)
        self._derived.clear()

    def keep(self, rows: Tensor) -> None:
        """Leave only the given rows, shape (B',), int64."""
        self.lengths, self.ceilings = self.lengths[rows], self.ceilings[rows]
        self._derived.clear()

    def _once(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def _lengths_on(self, device: torch.device) -> Tensor:
        return self._once(device, lambda: self.lengths.to(device))


class Filled(Cached):
    """A cache in which every sequence has the same room; per layer shape (B, G, L, D)."""

    def _found(self, tokens: Sequence[Sequence[int]], ceilings: Sequence[int]) -> Tensor:
        room = max(ceilings) + 1
        if self.lengths.device.type == "cpu":
            room = min(room, max(map(len, tokens)) + _GROWTH)
        found = torch.zeros(len(tokens), room, dtype=torch.int64)
        for row, own in zip(found, tokens, strict=True):
            row[: len(own)] = torch.tensor(own)
        return found

    def _moved(self, states: Tensor, found: Tensor) -> Tensor:
        return states[:, found].transpose(0, 1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """See `Layout`; T is 1."""
        places = self._lengths_on(key.device)[:, None, None, None].expand(key.shape)
        self.keys[layer].scatter_(2, places, key)
        self.values[layer].scatter_(2, places, value)
        batch, heads, _, size = query.shape
        groups = key.shape[1]
        grouped = query.reshape(batch, groups, heads // groups, size)
        mask = self._once((bounds.window, key.device), lambda: self._mask(bounds.window, key.device))
        output = dense_attention(grouped, self.keys[layer], self.values[layer], mask, bounds)
        return output.reshape(batch, 1, heads, size)

    def keep(self, rows: Tensor) -> None:
        """See `Cached`; the others' memory is given back."""
        super().keep(rows)
        for states in (self.keys, self.values):
            for layer, old in states.items():
                states[layer] = old[rows.to(old.device)]

    def make_room(self, longest: int, highest: int) -> None:
        """See `Cached`."""
        if longest < self._room:
            return
        more = min(longest + _GROWTH, highest + 1) - self._room
        for states in (self.keys, self.values):
            for layer, old in states.items():
                states[layer] = F.pad(old, (0, 0, 0, more))

    @property
    def _room(self) -> int:
        return next(iter(self.keys.values())).shape[2]

    def _mask(self, window: int | None, device: torch.device) -> Tensor:
        places = torch.arange(self._room, device=device)
        newest = self._lengths_on(device)[:, None]
        seen = places <= newest
        return (seen if window is None else seen & (places > newest - window))[:, None, None]


class Snug(Cached):
    """A cache in which sequences lie end to end; per layer shape (N, G, D)."""

    def __init__(
        self, layout: Packed, tokens: Sequence[Sequence[int]], ceilings: Sequence[int], *, release: bool
    ) -> None:
        super().__init__(layout, tokens, ceilings, release=release)
        self._rooms = {layout.device: Spans.of([ceiling + 1 for ceiling in ceilings], layout.device)}

    def _found(self, tokens: Sequence[Sequence[int]], ceilings: Sequence[int]) -> Tensor:
        rows = zip(tokens, ceilings, strict=True)
        return torch.tensor([place for own, top in rows for place in (*own, *[0] * (top + 1 - len(own)))])

    def _moved(self, states: Tensor, found: Tensor) -> Tensor:
        return states.transpose(0, 1)[found]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, bounds: Bounds) -> Tensor:
        """See `Layout`; T is 1."""
        rooms, lengths = self._rooms_on(key.device), self._lengths_on(key.device)
        used = self._once(("used", key.device), lambda: (lengths + 1).to(torch.int32))
        places = rooms.ends[:-1] + lengths
        self.keys[layer].index_copy_(0, places, key[:, :, 0])
        self.values[layer].index_copy_(0, places, value[:, :, 0])
        newest = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
        output = varlen_attention(
            query[:, :, 0],
            self.keys[layer],
            self.values[layer],
            (newest, rooms.ends),
            (1, rooms.longest),
            scale=bounds.scale,
            window=bounds.window,
            used=used,
        )
        return output[:, None]

    def keep(self, rows: Tensor) -> None:
        """See `Cached`; the others' places stay where they are, unread."""
        super().keep(rows)
        self._rooms = {device: rooms.starting_at(rows.to(device)) for device, rooms in self._rooms.items()}

    def _rooms_on(self, device: torch.device) -> Spans:
        if device not in self._rooms:
            self._rooms[device] = next(iter(self._rooms.values())).on(device)
        return self._rooms[device]

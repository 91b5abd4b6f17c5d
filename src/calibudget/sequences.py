"""Ordered sequences: those whose values are made as they are asked for, and their chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar, overload

T = TypeVar("T")
#: Values that are made at once in going through.
_STRETCH: Final = 16_384


def chunks(values: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Values in their order, `size` at a time; the last chunk holds what is left."""
    iterator = iter(values)
    while chunk := tuple(islice(iterator, size)):
        yield chunk


class MadeOnDemand(Sequence[T]):
    """A sequence of so many values that holds none of them: `between` makes those from a place up to another."""

    def __init__(self, size: int, between: Callable[[int, int], Sequence[T]]) -> None:
        self._size, self._between = size, between

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return tuple(self._between(start, max(start, stop))[::step]) if step > 0 else tuple(self)[index]
        at = range(len(self))[index]
        return self._between(at, at + 1)[0]

    def __eq__(self, other: object) -> bool:
        """Whether it holds the same values as another sequence, of whatever kind."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _STRETCH):
            yield from self._between(start, min(start + _STRETCH, len(self)))

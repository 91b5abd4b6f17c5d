"""Ordered sequences: those whose values are made as they are asked for, and their chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
    """A sequence that holds no values; needs `__len__` and `between`."""

    @abstractmethod
    def between(self, start: int, stop: int) -> Sequence[T]:
        """The values from `start` up to `stop`, 0 <= start <= stop <= len."""
        ...

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return tuple(self.between(start, max(start, stop))[::step]) if step > 0 else tuple(self)[index]
        at = range(len(self))[index]
        return self.between(at, at + 1)[0]

    def __eq__(self, other: object) -> bool:
        """Whether it holds the same values as another sequence, of whatever kind."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _STRETCH):
            yield from self.between(start, min(start + _STRETCH, len(self)))

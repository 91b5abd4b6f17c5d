"""How a stage tells how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Called with a stage's name, how much of it is done, and of how much (None while unknown)."""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Take note of a stage's state."""
        ...


def silent(stage: str, done: int, total: int | None) -> None:
    """A listener that says nothing."""


@contextmanager
def whole(progress: Progress, stage: str) -> Iterator[None]:
    """Tell of a stage that can't say how far it is: when it begins, and that it is done."""
    progress(stage, 0, 1)
    yield
    progress(stage, 1, 1)


def each(progress: Progress, stage: str, items: Collection[Item]) -> Iterator[Item]:
    """Go through the items of a stage, telling before each how many are done, and at the end that all are."""
    for done, item in enumerate(items):
        progress(stage, done, len(items))
        yield item
    if items:
        progress(stage, len(items), len(items))

"""Who reads the inputs of sources."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from calibudget.sources.identities import Identities, find_or_make
from calibudget.sources.inputs import Input
from calibudget.sources.scratch import Scratch
from calibudget.sources.spec import SourceSpec


class Readers:
    """x."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._scratch = Scratch()

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, spec: SourceSpec, given: Input) -> Callable[[], Identities]:
        """x."""
        return partial(find_or_make, spec, given, self._scratch.path("x").parent, self._cache)

"""Data sets of the Hugging Face hub, through `datasets`: data only, never their code.

`HF_HOME` and `HF_HUB_OFFLINE` hold as `datasets` reads them; what was downloaded once is found offline.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from calibudget.errors import DataError, DependencyError
from calibudget.sources.columns import batch_rows
from calibudget.sources.rows import Row
from calibudget.sources.spec import SourceSpec
from calibudget.store import SourceFile

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 4096
#: Whether hub data sets are looked for in the local cache alone.
_CACHE_ALONE: Final = ContextVar("_CACHE_ALONE", default=False)


@contextmanager
def from_the_cache() -> Iterator[None]:
    """Within it, hub data sets come from the local cache or not at all: nothing is asked of the hub or waited for."""
    token = _CACHE_ALONE.set(True)
    try:
        yield
    finally:
        _CACHE_ALONE.reset(token)


def hub_name(spec: SourceSpec) -> str:
    """What a hub data set is called in messages and evidence."""
    parts = [f"hub:{spec.hub}", *([spec.subset] if spec.subset else []), spec.split]
    return "/".join(parts) + (f"@{spec.revision}" if spec.revision else "")


def hub_rows(spec: SourceSpec) -> Iterator[Row]:
    """The rows of a hub data set's split, numbered from 1.

    With `streaming` they come as the hub sends them and nothing is kept on disk; else the data set is downloaded first,
    and found again without a network.

    Raises:
        DependencyError: `datasets` isn't installed.
        DataError: the data set, subset, split or revision can't be had, or the hub stops answering; offline is named
            where that is why.
    """
    fields = (
        fields
        for table in _tables(spec)
        for batch in table.to_batches()
        for fields in batch_rows(batch, spec.limits.nesting)
    )
    return enumerate(fields, start=1)


class RowDigest:
    """Binds rows by their content, each as a line of compact JSON with sorted keys; a bad row by an empty line."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, each counted as it passes."""
        for at, found in rows:
            fields = {} if isinstance(found, DataError) else found
            text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if fields else ""
            line = text.encode("utf-8", "surrogatepass") + b"\n"
            self._sha256.update(line)
            self._bytes += len(line)
            yield at, found

    def file(self, name: str) -> SourceFile:
        """What passed so far, under a name."""
        return SourceFile(name=name, bytes=self._bytes, sha256=self._sha256.hexdigest())


def _tables(spec: SourceSpec) -> Iterator[pa.Table]:
    if importlib.util.find_spec("datasets") is None:
        raise DependencyError(f"source {spec.label!r} is a hub data set: pip install 'calibudget[lm]'")
    import datasets

    cache_alone = _CACHE_ALONE.get()
    try:
        with _offline() if cache_alone else nullcontext():
            found = datasets.load_dataset(
                spec.hub, spec.subset, split=spec.split, revision=spec.revision, streaming=spec.streaming
            )
        yield from found.with_format("arrow").iter(_BATCH_ROWS)
    except Exception as error:  # datasets and its clients raise dozens of types, none of them in common
        offline = " (HF_HUB_OFFLINE is set)" if datasets.config.HF_HUB_OFFLINE else ""
        offline = " (it was looked for in the local cache alone)" if cache_alone else offline
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
        raise DataError(f"source {spec.label!r}: {hub_name(spec)} can't be loaded{offline}: {reason}") from error


@contextmanager
def _offline() -> Iterator[None]:
    """What HF_HUB_OFFLINE does, in a process that began without it: the libraries read it once, when imported."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before

"""Data sets of the Hugging Face hub, through `datasets`: data only, never their code.

`HF_HOME` and `HF_HUB_OFFLINE` hold as `datasets` reads them; what was downloaded once is found offline.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from calibudget.errors import DataError, DependencyError
from calibudget.sources.rows import Row, arrow_rows
from calibudget.sources.spec import SourceSpec
from calibudget.store import SourceFile

if TYPE_CHECKING:
    from datasets import Dataset


def hub_name(spec: SourceSpec) -> str:
    """What a hub data set is called in messages and evidence."""
    parts = [f"hub:{spec.hub}", *([spec.subset] if spec.subset else []), spec.split]
    return "/".join(parts) + (f"@{spec.revision}" if spec.revision else "")


def hub_rows(spec: SourceSpec) -> Iterator[Row]:
    """The rows of a hub data set's split.

    Raises:
        DependencyError: `datasets` isn't installed.
        DataError: the data set, subset, split or revision can't be had; offline is named where that is why.
    """
    dataset = _load(spec)
    table = dataset.with_format("arrow")
    batches = (table[start : start + 4096] for start in range(0, len(dataset), 4096))
    return arrow_rows((batch for part in batches for batch in part.to_batches()), hub_name(spec))


class RowDigest:
    """Binds rows by their content, each as a line of compact JSON with sorted keys; a bad row by an empty line."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, each counted as it passes."""
        for row in rows:
            fields = {} if isinstance(row.fields, DataError) else row.fields
            text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if fields else ""
            line = text.encode("utf-8", "surrogatepass") + b"\n"
            self._sha256.update(line)
            self._bytes += len(line)
            yield row

    def file(self, name: str) -> SourceFile:
        """What passed so far, under a name."""
        return SourceFile(name=name, bytes=self._bytes, sha256=self._sha256.hexdigest())


def _load(spec: SourceSpec) -> Dataset:
    if importlib.util.find_spec("datasets") is None:
        raise DependencyError(f"source {spec.label!r} is a hub data set: pip install 'calibudget[lm]'")
    import datasets

    try:
        return datasets.load_dataset(spec.hub, spec.subset, split=spec.split, revision=spec.revision)
    except Exception as error:  # datasets and its clients raise dozens of types, none of them in common
        offline = " (HF_HUB_OFFLINE is set)" if datasets.config.HF_HUB_OFFLINE else ""
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
        raise DataError(f"source {spec.label!r}: {hub_name(spec)} can't be loaded{offline}: {reason}") from error

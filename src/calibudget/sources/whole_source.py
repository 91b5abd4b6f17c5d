"""Reading one source into memory: for what is joined, compared or evaluated whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibudget.records import Record, SourceFile
from calibudget.sources.duplicates import Resolved, resolve_duplicates
from calibudget.sources.identity_index import Tally
from calibudget.sources.identity_table import ROW
from calibudget.sources.reading_workers import Readers
from calibudget.sources.scan import scan_sources
from calibudget.sources.spec import SourceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """One source as read, whole: what was found in its pass, the records that stay, in the order of files and rows."""

    source: Resolved
    records: tuple[Record, ...]
    tally: Tally

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """Every file read, bound by its bytes; for a hub data set its name and the digest of its rows."""
        return self.source.scan.files


def read_source(spec: SourceSpec, data_dir: Path, *, readers: Readers | None = None) -> SourceRead:
    """Read a source whole; without readers this process reads, and keeps nothing."""
    source = open_source(spec, data_dir, selection_seed=0, readers=readers)
    scan = source.scan
    rows = np.concatenate([np.empty(0, dtype=ROW), *source.parts()])
    rows = rows[np.lexsort((rows["at"], rows["file"]))]
    return SourceRead(source=source, records=tuple(scan.records(rows)), tally=scan.tally)


def open_source(spec: SourceSpec, data_dir: Path, *, selection_seed: int, readers: Readers | None = None) -> Resolved:
    """`open_sources` of one; without readers this process reads, and keeps nothing."""
    with Readers() if readers is None else nullcontext(readers) as own:
        (source,) = open_sources([spec], data_dir, selection_seed=selection_seed, readers=own)
    return source


def open_sources(
    specs: Iterable[SourceSpec], data_dir: Path, *, selection_seed: int, readers: Readers
) -> Iterator[Resolved]:
    """Sources after their pass, their ids unique; their records stay where they are until they are asked for.

    Nothing of what is found, nor its order, depends on who reads.

    Raises:
        DataError: a file is missing, torn or of an unknown kind; a row can't be used and isn't to be skipped (its
            file and line are named); ids clash; or no record is left.
    """
    return map(resolve_duplicates, scan_sources(specs, data_dir, selection_seed=selection_seed, readers=readers))

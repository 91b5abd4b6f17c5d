"""`splits.parquet`: which records calibrate, evaluate or may be selected, with the keys that decided it (paper 2.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from calibudget.errors import ArtefactError, InputError, refuse_as
from calibudget.keys import order_keys
from calibudget.records import Split
from calibudget.sequences import MadeOnDemand, chunks
from calibudget.store.json_records import Artefact
from calibudget.store.parquet import columns, read_table, write_tables
from calibudget.values import Integer, check_labels

SPLITS_NAME: Final = "splits.parquet"
_CHUNK: Final = 65_536
_NONE: Final = range(0)
_COLUMNS: Final = columns(
    "source string, record_id string, role string, prompt_tokens int64?, response_tokens int64?"
).insert(3, pa.field("key", pa.binary(32), nullable=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seeds:
    """What the table says of itself."""

    split_seed: Integer
    selection_seed: Integer


_METADATA: Final = Artefact("calibudget.splits/1", _Seeds)


class TokenCount(NamedTuple):
    """Tokens of one record as encoded, after truncation: the prompt's, and the response's with its end token."""

    prompt: int
    response: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIds:
    """One source's ids as `splits.parquet` holds them.

    Attributes:
        calibration: ids of the calibration split, ascending under the "calibration" key.
        candidates: ids of the candidate pool, ascending under the "selection" key.
        tokens: token counts by record id; empty unless counted.
        evaluation: ids of the evaluation split, ascending under the "evaluation" key; empty without one.
    """

    calibration: tuple[str, ...]
    candidates: Sequence[str]
    tokens: Mapping[str, TokenCount]
    evaluation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitIds:
    """All sources' ids and the seeds of the keys that order them; `splits.parquet`."""

    split_seed: int
    selection_seed: int
    sources: Mapping[str, SourceIds]

    @property
    def pool_sizes(self) -> dict[str, int]:
        """N_k of each source: its candidates."""
        return {label: len(ids.candidates) for label, ids in self.sources.items()}


#: The role under which each kind of row is keyed, in the order in which the kinds stand, which is that of their names.
_KEYED_AS: Final = {"calibration": "calibration", "candidate": "selection", "evaluation": "evaluation"}


class _Row(NamedTuple):
    source: str
    record_id: str
    role: str
    key: bytes
    prompt_tokens: int | None
    response_tokens: int | None


def write_splits(
    path: Path,
    splits: Iterable[Split],
    *,
    split_seed: int,
    selection_seed: int,
    tokens: Mapping[str, Mapping[str, TokenCount]] | None = None,
) -> None:
    """Write `splits.parquet`, atomically.

    The seeds are those under which splits were and candidates will be drawn; tokens go by source and record id.
    """
    seeds = _Seeds(split_seed=split_seed, selection_seed=selection_seed)
    keyed = _keyed(seeds)
    rows = chain.from_iterable(
        _rows(split, role, keyed[role], (tokens or {}).get(split.source, {}))
        for split in sorted(splits, key=lambda split: split.source)
        for role in _KEYED_AS
    )
    metadata = _METADATA.to_json(seeds)
    write_tables(path, _COLUMNS, _tables(rows), metadata, dictionary=["source", "role"])


def read_splits(path: Path) -> SplitIds:
    """Read `splits.parquet`, recomputing every key.

    Raises:
        ArtefactError: the file is missing or damaged, or a column or row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    seeds = _METADATA.parse(metadata, f"{path.name}: schema metadata")
    spans, tokens = _checked(path.name, table, _keyed(seeds))
    ids = table["record_id"]
    for label, role in spans:
        if role == "evaluation":
            _check_held_out(path.name, ids, label, spans[label, role], spans.get((label, "candidate"), _NONE))
    sources = {
        label: SourceIds(
            calibration=tuple(_ids(ids, spans.get((label, "calibration"), _NONE))),
            candidates=_ids(ids, spans.get((label, "candidate"), _NONE)),
            tokens=tokens.get(label, {}),
            evaluation=tuple(_ids(ids, spans.get((label, "evaluation"), _NONE))),
        )
        for label in sorted({label for label, _ in spans})
    }
    return SplitIds(split_seed=seeds.split_seed, selection_seed=seeds.selection_seed, sources=sources)


def _keyed(seeds: _Seeds) -> dict[str, int]:
    """The seed of each role's keys."""
    return {"calibration": seeds.split_seed, "candidate": seeds.selection_seed, "evaluation": seeds.split_seed}


def _ids(column: pa.ChunkedArray, span: range) -> MadeOnDemand[str]:
    """Ids that stay in their column, some 70 bytes each, and are made as they are asked for."""
    own = column.slice(span.start, len(span))
    return MadeOnDemand(len(own), lambda start, stop: own.slice(start, stop - start).to_pylist())


def _rows(split: Split, role: str, seed: int, counts: Mapping[str, TokenCount]) -> Iterator[_Row]:
    """The rows of one role in key order, in which the ids stand already."""
    source, key = split.source, order_keys(_KEYED_AS[role], seed, split.source)
    records = split.evaluation if role == "evaluation" else split.calibration
    ids = split.candidate_ids if role == "candidate" else [record.record_id for record in records]
    last = b""
    for record_id in ids:
        place = key(record_id)
        if place <= last:
            raise InputError(f"the {role} records of {source!r} aren't in the order of their keys")
        last = place
        yield _Row(source, record_id, role, place, *counts.get(record_id, (None, None)))


def _tables(rows: Iterator[_Row]) -> Iterator[pa.Table]:
    empty = True
    for chunk in chunks(rows, _CHUNK):
        empty = False
        yield pa.table({name: [row[i] for row in chunk] for i, name in enumerate(_Row._fields)}, schema=_COLUMNS)
    if empty:
        yield _COLUMNS.empty_table()


def _checked(
    name: str, table: pa.Table, seeds: Mapping[str, int]
) -> tuple[dict[tuple[str, str], range], dict[str, dict[str, TokenCount]]]:
    """Where each source's and role's rows stand, and the token counts; every row is looked at, none is kept."""
    key_of = cache(lambda source, role: order_keys(_KEYED_AS[role], seeds[role], source))
    spans: dict[tuple[str, str], range] = {}
    tokens: dict[str, dict[str, TokenCount]] = defaultdict(dict)
    calibration: set[str] = set()
    place: tuple[str, str, bytes] = ("", "", b"")
    for number, row in enumerate(_rows_of(table), start=1):
        fault = _row_fault(row)
        if row.source != place[0]:
            calibration = set()
        if fault is None and (row.record_id in calibration or (row.source, row.role, row.key) == place):
            fault = ("record_id", f"{row.record_id!r} stands twice in the source {row.source!r}")
        if fault is None and row.key != key_of(row.source, row.role)(row.record_id):
            fault = ("key", f"isn't the key of {row.record_id!r} in its role")
        if fault is None and (row.source, row.role, row.key) <= place:
            fault = ("key", "rows must ascend by source, role and key")
        if fault is not None:
            raise ArtefactError(f"{name}, row {number}: column {fault[0]!r}: {fault[1]}")
        if row.role == "calibration":
            calibration.add(row.record_id)
        place = (row.source, row.role, row.key)
        spans[place[:2]] = range(spans.get(place[:2], range(number - 1, 0)).start, number)
        if row.prompt_tokens is not None and row.response_tokens is not None:
            tokens[row.source][row.record_id] = TokenCount(row.prompt_tokens, row.response_tokens)
    with refuse_as(ArtefactError, f"{name}: column 'source'", ValueError):
        check_labels(sorted({label for label, _ in spans}))
    return spans, tokens


def _check_held_out(name: str, ids: pa.ChunkedArray, label: str, evaluation: range, candidates: range) -> None:
    """Refuse an evaluation record that is a candidate too; the candidates stay in their column."""
    import pyarrow.compute as pc

    pool = ids.slice(candidates.start, len(candidates))
    both = pool.filter(pc.is_in(pool, value_set=ids.slice(evaluation.start, len(evaluation)).combine_chunks()))
    if len(both):
        raise ArtefactError(
            f"{name}: column 'record_id': {both[0].as_py()!r} of the source {label!r} is a candidate and evaluates"
        )


def _rows_of(table: pa.Table) -> Iterator[_Row]:
    for start in range(0, table.num_rows, _CHUNK):
        yield from map(_Row, *(column.to_pylist() for column in table.slice(start, _CHUNK).columns))


def _row_fault(row: _Row) -> tuple[str, str] | None:
    if row.role not in _KEYED_AS:
        return "role", f"must be 'calibration', 'candidate' or 'evaluation', not {row.role!r}"
    if not row.record_id:
        return "record_id", "is empty"
    if (row.prompt_tokens is None) != (row.response_tokens is None):
        return "prompt_tokens", "prompt and response tokens are counted together or not at all"
    if row.prompt_tokens is not None and row.prompt_tokens < 0:
        return "prompt_tokens", "is negative"
    if row.response_tokens is not None and row.response_tokens < 1:
        return "response_tokens", "must be at least 1"
    return None

"""`train.jsonl` and `train.parquet`: the selected examples, trainable as they are, their originals beside them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibudget.errors import ArtefactError, InputError
from calibudget.store.artefacts.fields import Fields
from calibudget.store.artefacts.tables import load_table
from calibudget.store.atomic import atomic_file
from calibudget.store.canonical import loads_object

TRAIN_JSONL_NAME: Final = "train.jsonl"
TRAIN_PARQUET_NAME: Final = "train.parquet"

#: What every row of one train set holds its text in.
TrainLayout = Literal["completion", "messages"]

_CHUNK: Final = 16_384
_MESSAGES: Final = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))
_IDENTITY: Final = [pa.field(name, pa.string(), nullable=False) for name in ("source", "record_id", "role")]
_TEXTS: Final[dict[TrainLayout, list[pa.Field]]] = {
    "completion": [pa.field(name, pa.string(), nullable=False) for name in ("prompt", "completion")],
    "messages": [pa.field("messages", _MESSAGES, nullable=False)],
}
_FEW_VALUES: Final = ["source", "role"]
_ORIGINAL: Final = pa.field("original", pa.string(), nullable=False)


def write_train(path: Path, rows: Iterable[Mapping[str, object]], *, layout: TrainLayout) -> int:
    """Write a train set in the given order, atomically: Parquet under the suffix `.parquet`, else JSONL.

    Args:
        path: the file.
        rows: rows as `selection.train_row` makes them, all of one layout; consumed once, never held together.
        layout: the layout of all of them.

    Returns:
        How many rows were written.

    Raises:
        InputError: a value of an original has no JSON form; source and record id are named.
        ArtefactError: the file can't be written.
    """
    return _write_parquet(path, rows, layout) if path.suffix == ".parquet" else _write_jsonl(path, rows)


def read_train(path: Path) -> Iterator[dict[str, object]]:
    """The rows of a train set in file order, one at a time, `original` an object in both formats.

    Raises:
        ArtefactError: the file is missing or damaged, or a row isn't what it should be; line or row is named.
    """
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _jsonl_rows(path)
    for place, value in rows:
        row = Fields(value, f"{path.name}: {place}")
        row.one_of("role", "source", "companion")
        for name in ("source", "record_id"):
            row.text(name)
        row.mapping("original")
        _check_texts(row, value)
        row.finish()
        yield value


def plain_json(value: object) -> object:
    """A value of an original record as JSON says it (docs/formats.md): nothing lost but NaN, which becomes null.

    Raises:
        InputError: an infinity, a key that is no string, or a type without a form.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _plain_float(value)
        case Mapping():
            return {_plain_key(key): plain_json(item) for key, item in value.items()}
        case list() | tuple():
            return [plain_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case np.generic() | np.ndarray():
            return plain_json(value.tolist())
        case _:
            raise InputError(f"a value of type {type(value).__name__} has no JSON form")


def _plain_float(value: float) -> float | None:
    if math.isinf(value):
        raise InputError("an infinity has no JSON form")
    return None if math.isnan(value) else value


def _plain_key(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(f"the key {key!r} is no string")
    return key


def _compact_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


@contextmanager
def _naming(row: Mapping[str, object]) -> Iterator[None]:
    """Say which record it is that has no JSON form."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(f"{row['source']}: record {row['record_id']}: a text holds a lone surrogate") from error
    except (InputError, RecursionError) as error:
        raise InputError(f"{row['source']}: record {row['record_id']}: original: {error}") from error


def _write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    count = 0
    with atomic_file(path) as handle:
        for row in rows:
            with _naming(row):
                line = _compact_json({**row, "original": plain_json(row["original"])})
            handle.write(line + b"\n")
            count += 1
    return count


def _write_parquet(path: Path, rows: Iterable[Mapping[str, object]], layout: TrainLayout) -> int:
    schema = pa.schema([*_IDENTITY, *_TEXTS[layout], _ORIGINAL])
    options = {"version": "2.6", "compression": "zstd", "write_page_checksum": True, "use_dictionary": _FEW_VALUES}
    count = 0
    with atomic_file(path) as handle, pq.ParquetWriter(handle, schema, **options) as writer:
        for chunk in _chunks(rows):
            columns = {name: [row[name] for row in chunk] for name in schema.names if name != "original"}
            columns["original"] = [_original_text(row) for row in chunk]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=_CHUNK)
            count += len(chunk)
    return count


def _original_text(row: Mapping[str, object]) -> str:
    with _naming(row):
        return _compact_json(plain_json(row["original"])).decode("utf-8")


def _chunks(rows: Iterable[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _jsonl_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    try:
        with path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                if not line.endswith(b"\n"):
                    raise ArtefactError(f"{path.name}: line {number}: is cut short")
                yield f"line {number}", loads_object(line, f"{path.name}: line {number}")
    except OSError as error:
        raise ArtefactError(f"{path.name}: can't be read: {error.strerror or error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    table = load_table(path)
    found = table.schema.remove_metadata()
    if not any(found.equals(pa.schema([*_IDENTITY, *texts, _ORIGINAL])) for texts in _TEXTS.values()):
        raise ArtefactError(f"{path.name}: the columns aren't those of a train set")
    number = 0
    for batch in table.to_batches(max_chunksize=_CHUNK):
        for row in batch.to_pylist():
            number += 1
            original = loads_object(row["original"].encode("utf-8"), f"{path.name}: row {number}: original")
            yield f"row {number}", {**row, "original": original}


def _check_texts(row: Fields, value: Mapping[str, object]) -> None:
    if "messages" not in value:
        row.text("prompt")
        row.text("completion")
        return
    for turn in row.children("messages"):
        turn.text("role")
        turn.text("content")
        turn.finish()

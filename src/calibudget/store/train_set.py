"""The train set: the selected examples, trainable as they are, their originals beside them.

Its schemas are decided by no row. What may hold any fields (`original`, the arguments of tool calls, a tool's
description) is text of JSON, so that a first row of nulls or a field that changes its type can't make the schema
another one.

`train.jsonl` and `train.parquet` are files, `train.dataset` is a directory as `datasets` saves one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from calibudget.errors import ArtefactError, InputError, refuse_as
from calibudget.messages import shown
from calibudget.store.canonical import canonical_json, compact_json, loads_object, open_regular, plain_json, strict_json
from calibudget.store.checksums import file_digest
from calibudget.store.files import atomic_file, clean_stale, refuse_links, write_atomic
from calibudget.store.json_records import Shape
from calibudget.store.parquet import load_table
from calibudget.values import Text

#: How the rows of one train set hold their text: as two texts, bare or rendered, as two lists of turns, or as one list.
TrainLayout = Literal["rendered", "completion", "turns", "messages"]
#: Row of a train set.
Row = Mapping[str, object]
#: Rows in a batch, at most.
_ROWS: Final = 16_384
#: Characters of originals in a batch, so that long rows don't pile up.
_CHARACTERS: Final = 2**25
_TEXT: Final = pa.string()
_IDENTITY: Final = [pa.field(name, _TEXT, nullable=False) for name in ("source", "record_id", "role")]
_ORIGINAL: Final = pa.field("original", _TEXT, nullable=False)
_TURN: Final = [pa.field(name, _TEXT) for name in ("role", "content")]
_TOOL_TURN: Final = [*_TURN, *(pa.field(name, _TEXT) for name in ("name", "tool_call_id", "tool_calls"))]
#: Columns that hold a row's text, by layout.
COLUMNS: Final[Mapping[TrainLayout, tuple[str, ...]]] = {
    "rendered": ("prompt", "completion"),
    "completion": ("prompt", "completion"),
    "turns": ("prompt", "completion"),
    "messages": ("messages",),
}
_TURNS: Final = ("prompt", "completion", "messages")


def train_schema(layout: TrainLayout, *, tools: bool) -> pa.Schema:
    """The columns of a train set."""
    kind = _TEXT if layout in ("rendered", "completion") else pa.list_(pa.struct(_TOOL_TURN if tools else _TURN))
    texts = [pa.field(name, kind, nullable=False) for name in COLUMNS[layout]]
    return pa.schema([*_IDENTITY, *texts, *([pa.field("tools", _TEXT)] if tools else []), _ORIGINAL])


#: Every schema that a train set can have.
SCHEMAS: Final = tuple(train_schema(layout, tools=tools) for layout in COLUMNS for tools in (False, True))


def batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows, `original` as JSON text already, in batches that neither many rows nor long ones make large."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(_flat(row, schema))
        size += len(str(row["original"]))
        if len(chunk) == _ROWS or size >= _CHARACTERS:
            yield _batch(chunk, schema)
            chunk, size = [], 0
    if chunk:
        yield _batch(chunk, schema)


def _batch(chunk: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch({name: [row.get(name) for row in chunk] for name in schema.names}, schema=schema)


def _flat(row: Row, schema: pa.Schema) -> dict[str, Any]:
    """The row with its tools and tool calls as JSON text, and with every field of the schema, null where it has none.

    Readers infer one type from any row.
    """
    flat: dict[str, Any] = {name: row.get(name) for name in schema.names}
    if flat.get("tools") is not None:
        flat["tools"] = compact_json(flat["tools"])
    for name in _TURNS:
        if isinstance(flat.get(name), list):
            fields = [field.name for field in schema.field(name).type.value_type]
            flat[name] = [{field: turn.get(field) for field in fields} for turn in flat[name]]
            for turn in flat[name]:
                if turn.get("tool_calls") is not None:
                    turn["tool_calls"] = compact_json(turn["tool_calls"])
    return flat


def _deep(row: dict[str, Any]) -> dict[str, Any]:
    """The row that `_flat` and the conversion of its original made this of."""
    for name in _TURNS:
        if isinstance(row.get(name), list):
            row[name] = [{part: value for part, value in turn.items() if value is not None} for turn in row[name]]
            for turn in row[name]:
                if "tool_calls" in turn:
                    turn["tool_calls"] = strict_json(turn["tool_calls"].encode("utf-8"))
    for name in ("tools", "original"):
        text = row.pop(name, None)
        if text is not None:
            row[name] = strict_json(text.encode("utf-8"))
    return row


#: Records that a run holds out for evaluation, as rows of turns whatever the train set's layout.
HELD_OUT_NAME: Final = "held-out.jsonl"
#: The names that a train set can have in a run directory.
TRAIN_NAMES: Final = ("train.jsonl", "train.parquet", "train.dataset")
_PARQUET: Final = {
    "version": "2.6",
    "compression": "zstd",
    "write_page_checksum": True,
    "use_dictionary": ["source", "role"],
}
_ARROW: Final = "data-00000-of-00001.arrow"
_INFO: Final = "dataset_info.json"
_STATE: Final = "state.json"


def train_files(name: str) -> tuple[str, ...]:
    """The files of a train set of that name, relative to the run directory, the one with its rows first."""
    return tuple(f"{name}/{file}" for file in (_ARROW, _INFO, _STATE)) if name.endswith(".dataset") else (name,)


def write_train(path: Path, rows: Iterable[Row], *, layout: TrainLayout, tools: bool = False) -> int:
    """Write a train set in the given order and layout, atomically; how many rows were written.

    The path's suffix says the format: `.parquet`, `.dataset` or JSON lines. Rows are as
    `selection.train_rows.train_row` makes them, consumed once and never held together; columns for tools are made where
    some have tools or call one.

    Raises:
        InputError: a value of an original has no JSON form; source and record id are named.
        ArtefactError: the file can't be written.
    """
    schema = train_schema(layout, tools=tools)
    if path.suffix == ".parquet":
        with atomic_file(path) as handle, pq.ParquetWriter(handle, schema, **_PARQUET) as to:
            return _write_batches(to, batches(map(_with_text, rows), schema))
    if path.suffix == ".dataset":
        return write_saved(path, batches(map(_with_text, rows), schema), schema)
    count = 0
    with atomic_file(path) as handle:
        for row in rows:
            with _naming(row):
                line = compact_json(_flat(_with_text(row), schema)).encode("utf-8")
            handle.write(line + b"\n")
            count += 1
    return count


def read_train(path: Path) -> Iterator[dict[str, object]]:
    """The rows of a train set in its order, one at a time, `original`, tools and their calls as objects.

    Raises:
        ArtefactError: the file is missing or damaged, or a row isn't what it should be; line or row is named.
    """
    readers = {".parquet": _parquet_rows, ".dataset": _dataset_rows}
    for place, value in readers.get(path.suffix, _jsonl_rows)(path):
        _SHAPES[_layout_of(value)].parse(value, place)
        with refuse_as(ArtefactError, place, InputError, UnicodeEncodeError):
            deep = _deep(value)
        if not isinstance(deep["original"], dict):
            raise ArtefactError(f"{place}: original: must be the text of an object, not {shown(deep['original'])}")
        yield deep


def copy_train(path: Path, target: Path) -> int:
    """Write a train set again as a directory that `datasets.load_from_disk` reads; returns the number of its rows."""
    layout = _layout_of(next(read_train(path), {}))
    schema = train_schema(layout, tools=any(map(_uses_tools, read_train(path))))
    return write_saved(target, batches(map(_with_text, read_train(path)), schema), schema)


def write_saved(directory: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write batches as `datasets` saves a data set; of its three files the one that makes it one comes last."""
    refuse_links(directory)
    directory.mkdir(exist_ok=True)
    clean_stale(directory)
    (directory / _STATE).unlink(missing_ok=True)
    try:
        with atomic_file(directory / _ARROW) as handle, pa.ipc.new_stream(handle, schema) as to:
            count = _write_batches(to, batches)
    except BaseException:
        with suppress(OSError):
            directory.rmdir()
        raise
    write_atomic(directory / _INFO, canonical_json({}))
    state: dict[str, object] = {
        "_data_files": [{"filename": _ARROW}],
        "_fingerprint": file_digest(directory / _ARROW).sha256[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": "train",
    }
    write_atomic(directory / _STATE, canonical_json(state))
    return count


def _layout_of(row: Row) -> TrainLayout:
    if "messages" in row:
        return "messages"
    return "turns" if isinstance(row.get("prompt"), list) else "completion"


def _uses_tools(row: Row) -> bool:
    turns = row.get("messages", row.get("prompt"))
    return "tools" in row or (isinstance(turns, list) and any(len(turn) > 2 for turn in turns))


def _write_batches(to: pq.ParquetWriter | pa.RecordBatchWriter, batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        to.write_batch(batch)
        count += batch.num_rows
    return count


@contextmanager
def _naming(row: Row) -> Iterator[None]:
    """Say which record it is that has no JSON form."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(
            f"source {row['source']!r}, record {row['record_id']}: a text holds a lone surrogate"
        ) from error
    except (InputError, RecursionError) as error:
        raise InputError(f"source {row['source']!r}, record {row['record_id']}: original: {error}") from error


def _with_text(row: Row) -> Row:
    """The row with its original as JSON text."""
    with _naming(row):
        text = compact_json(plain_json(row["original"]))
        text.encode("utf-8")
    return {**row, "original": text}


def _jsonl_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    with refuse_as(ArtefactError, f"{path.name}: can't be read", OSError), open_regular(path) as handle:
        for number, line in enumerate(handle, start=1):
            if not line.endswith(b"\n"):
                raise ArtefactError(f"{path.name}:{number}: is cut short")
            row: dict[str, Any] = loads_object(line, f"{path.name}:{number}")
            if isinstance(row.get("original"), dict):  # lines of earlier versions hold objects as they are
                row = dict(_with_text(row))
                turns = (turn for name in _TURNS if isinstance(row.get(name), list) for turn in row[name])
                for holder, name in ((row, "tools"), *((turn, "tool_calls") for turn in turns)):
                    if isinstance(holder, dict) and name in holder:
                        holder[name] = compact_json(holder[name])
            yield f"{path.name}:{number}", row


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    table = load_table(path)
    _check_schema(table.schema, path.name)
    return _batch_rows(table.to_batches(max_chunksize=_ROWS), path.name)


def _dataset_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    file = f"{path.name}/{_ARROW}"
    with refuse_as(ArtefactError, f"{file}: can't be read", pa.ArrowException, OSError, UnicodeDecodeError):
        open_regular(path / _ARROW).close()  # Arrow's own file names its failures, but waits for a FIFO
        with pa.OSFile(str(path / _ARROW)) as source, pa.ipc.open_stream(source) as stream:
            _check_schema(stream.schema, file)
            yield from _batch_rows(map(_sound, stream), path.name)


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose offsets and texts are what they should be; Arrow by itself reads it as it lies."""
    batch.validate(full=True)
    return batch


def _check_schema(schema: pa.Schema, file: str) -> None:
    if not any(schema.remove_metadata().equals(known) for known in SCHEMAS):
        raise ArtefactError(f"{file}: the columns aren't those of a train set")


def _batch_rows(found: Iterable[pa.RecordBatch], name: str) -> Iterator[tuple[str, dict[str, object]]]:
    first = 1
    for batch in found:
        for number, row in enumerate(batch.to_pylist(), start=first):
            yield f"{name}, row {number}", row
        first += batch.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    role: Text
    content: Text
    name: Text | None = None
    tool_call_id: Text | None = None
    tool_calls: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    role: Literal["source", "companion"]
    source: Text
    record_id: Text
    original: Text
    tools: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextRow(_Row):
    prompt: Text
    completion: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class _TurnsRow(_Row):
    prompt: tuple[_Turn, ...]
    completion: tuple[_Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessagesRow(_Row):
    messages: tuple[_Turn, ...]


#: By what `_layout_of` says.
_SHAPES: Final[Mapping[str, Shape[Any]]] = {
    "completion": Shape(_TextRow),
    "turns": Shape(_TurnsRow),
    "messages": Shape(_MessagesRow),
}

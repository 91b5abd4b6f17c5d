"""The train set: the selected examples, trainable as they are, their originals beside them.

`train.jsonl` and `train.parquet` are files, `train.dataset` is a directory as `datasets` saves one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from calibudget.errors import ArtefactError, InputError
from calibudget.store.artefacts.fields import Fields
from calibudget.store.artefacts.plain import compact_json, plain_json
from calibudget.store.artefacts.tables import load_table
from calibudget.store.artefacts.train_columns import SCHEMAS, Row, TrainLayout, batches, rows_of, train_schema
from calibudget.store.atomic import atomic_file, clean_stale, write_atomic
from calibudget.store.canonical import canonical_json, loads_object, open_regular
from calibudget.store.sums import file_digest

#: The names that a train set can have in a run directory.
TRAIN_NAMES: Final = ("train.jsonl", "train.parquet", "train.dataset")

_PARQUET: Final = {
    "version": "2.6",
    "compression": "zstd",
    "write_page_checksum": True,
    "use_dictionary": ["source", "role"],
}
_CHUNK: Final = 16_384
_ARROW: Final = "data-00000-of-00001.arrow"
_INFO: Final = "dataset_info.json"
_STATE: Final = "state.json"


def train_files(name: str) -> tuple[str, ...]:
    """The files of a train set of that name, relative to the run directory, the one with its rows first."""
    return tuple(f"{name}/{file}" for file in (_ARROW, _INFO, _STATE)) if name.endswith(".dataset") else (name,)


def write_train(path: Path, rows: Iterable[Row], *, layout: TrainLayout, tools: bool = False) -> int:
    """Write a train set in the given order, atomically.

    Args:
        path: where it goes; its suffix says the format: `.parquet`, `.dataset` or JSON lines.
        rows: rows as `selection.train_row` makes them, all of one layout; consumed once, never held together.
        layout: the layout of all of them.
        tools: whether some of them have tools or call one; columns are made for them.

    Returns:
        How many rows were written.

    Raises:
        InputError: a value of an original has no JSON form; source and record id are named.
        ArtefactError: the file can't be written.
    """
    if path.suffix == ".parquet":
        with atomic_file(path) as handle, pq.ParquetWriter(handle, train_schema(layout, tools=tools), **_PARQUET) as to:
            return _write_batches(to, rows, to.schema)
    if path.suffix == ".dataset":
        return _write_dataset(path, rows, train_schema(layout, tools=tools))
    count = 0
    with atomic_file(path) as handle:
        for row in rows:
            with _naming(row):
                line = compact_json({**row, "original": plain_json(row["original"])}).encode("utf-8")
            handle.write(line + b"\n")
            count += 1
    return count


def read_train(path: Path) -> Iterator[dict[str, object]]:
    """The rows of a train set in its order, one at a time, `original` an object in every format.

    Raises:
        ArtefactError: the file is missing or damaged, or a row isn't what it should be; line or row is named.
    """
    readers = {".parquet": _parquet_rows, ".dataset": _dataset_rows}
    for place, value in readers.get(path.suffix, _jsonl_rows)(path):
        row = Fields(value, f"{path.name}: {place}")
        row.one_of("role", "source", "companion")
        for name in ("source", "record_id"):
            row.text(name)
        row.mapping("original")
        _check_texts(row, value)
        row.finish()
        yield value


def _write_batches(to: pq.ParquetWriter | pa.RecordBatchWriter, rows: Iterable[Row], schema: pa.Schema) -> int:
    count = 0
    for batch in batches(map(_with_text, rows), schema):
        to.write_batch(batch)
        count += batch.num_rows
    return count


def _write_dataset(directory: Path, rows: Iterable[Row], schema: pa.Schema) -> int:
    """The three files of a saved data set; the one that makes it one comes last."""
    directory.mkdir(exist_ok=True)
    clean_stale(directory)
    (directory / _STATE).unlink(missing_ok=True)
    try:
        with atomic_file(directory / _ARROW) as handle, pa.ipc.new_stream(handle, schema) as to:
            count = _write_batches(to, rows, schema)
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


@contextmanager
def _naming(row: Row) -> Iterator[None]:
    """Say which record it is that has no JSON form."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(f"{row['source']}: record {row['record_id']}: a text holds a lone surrogate") from error
    except (InputError, RecursionError) as error:
        raise InputError(f"{row['source']}: record {row['record_id']}: original: {error}") from error


def _with_text(row: Row) -> Row:
    """The row with its original as JSON text."""
    with _naming(row):
        text = compact_json(plain_json(row["original"]))
        text.encode("utf-8")
    return {**row, "original": text}


def _jsonl_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    try:
        with open_regular(path) as handle:
            for number, line in enumerate(handle, start=1):
                if not line.endswith(b"\n"):
                    raise ArtefactError(f"{path.name}: line {number}: is cut short")
                yield f"line {number}", loads_object(line, f"{path.name}: line {number}")
    except OSError as error:
        raise ArtefactError(f"{path.name}: can't be read: {error.strerror or error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    table = load_table(path)
    _check_schema(table.schema, path.name)
    return _batch_rows(table.to_batches(max_chunksize=_CHUNK), path.name)


def _dataset_rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    file = f"{path.name}/{_ARROW}"
    try:
        open_regular(path / _ARROW).close()  # Arrow's own file names its failures, but waits for a FIFO
        with pa.OSFile(str(path / _ARROW)) as source, pa.ipc.open_stream(source) as stream:
            _check_schema(stream.schema, file)
            yield from _batch_rows(map(_sound, stream), file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{file}: can't be read: {error}") from error


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose offsets and texts are what they should be; Arrow by itself reads it as it lies."""
    batch.validate(full=True)
    return batch


def _check_schema(schema: pa.Schema, file: str) -> None:
    if not any(schema.remove_metadata().equals(known) for known in SCHEMAS):
        raise ArtefactError(f"{file}: the columns aren't those of a train set")


def _batch_rows(found: Iterable[pa.RecordBatch], file: str) -> Iterator[tuple[str, dict[str, object]]]:
    first = 1
    for batch in found:
        yield from rows_of(batch, first, file)
        first += batch.num_rows


def _check_texts(row: Fields, value: Row) -> None:
    if "messages" in value:
        _check_turns(row, "messages")
    elif isinstance(value.get("prompt"), list):
        _check_turns(row, "prompt")
        _check_turns(row, "completion")
    else:
        row.text("prompt")
        row.text("completion")
    if "tools" in value:
        row.children("tools")


def _check_turns(row: Fields, name: str) -> None:
    for turn in row.children(name):
        turn.text("role")
        turn.text("content")
        for more in ("name", "tool_call_id"):
            turn.nullable(more, turn.text, may_be_absent=True)
        turn.nullable("tool_calls", turn.children, may_be_absent=True)
        turn.finish()

"""A train set in columns: schemas that no row decides, and rows to batches and back.

What may hold any fields (`original`, the arguments of tool calls, a tool's description) is text of JSON, so that a
first row of nulls or a field that changes its type can't make the schema another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import pyarrow as pa

from calibudget.errors import ArtefactError, InputError
from calibudget.store.artefacts.plain import compact_json
from calibudget.store.canonical import strict_json

#: How the rows of one train set hold their text: as two texts, as two lists of turns, or as one list.
TrainLayout = Literal["completion", "turns", "messages"]
#: Row of a train set.
Row = Mapping[str, object]

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
    "completion": ("prompt", "completion"),
    "turns": ("prompt", "completion"),
    "messages": ("messages",),
}

_TURNS: Final = ("prompt", "completion", "messages")


def train_schema(layout: TrainLayout, *, tools: bool) -> pa.Schema:
    """The columns of a train set.

    Args:
        layout: how its rows hold their text.
        tools: whether some record of it has tools or calls one.
    """
    kind = _TEXT if layout == "completion" else pa.list_(pa.struct(_TOOL_TURN if tools else _TURN))
    texts = [pa.field(name, kind, nullable=False) for name in COLUMNS[layout]]
    return pa.schema([*_IDENTITY, *texts, *([pa.field("tools", _TEXT)] if tools else []), _ORIGINAL])


#: Every schema that a train set can have.
SCHEMAS: Final = tuple(train_schema(layout, tools=tools) for layout in COLUMNS for tools in (False, True))


def batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows, `original` as JSON text already, in batches that neither many rows nor long ones make large."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(_flat(row))
        size += len(str(row["original"]))
        if len(chunk) == _ROWS or size >= _CHARACTERS:
            yield _batch(chunk, schema)
            chunk, size = [], 0
    if chunk:
        yield _batch(chunk, schema)


def rows_of(batch: pa.RecordBatch, first: int, file: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The rows of a batch, each with its place in words.

    Args:
        batch: the batch.
        first: the number of its first row.
        file: what to call the file.

    Raises:
        ArtefactError: a text that should be JSON isn't; file and row are named.
    """
    for number, row in enumerate(batch.to_pylist(), start=first):
        place = f"row {number}"
        try:
            yield place, _deep(row)
        except (InputError, UnicodeEncodeError) as error:
            raise ArtefactError(f"{file}: {place}: {error}") from error


def _batch(chunk: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch({name: [row.get(name) for row in chunk] for name in schema.names}, schema=schema)


def _flat(row: Row) -> Row:
    """The row with its tools and tool calls as JSON text."""
    flat = dict(row)
    for name in _TURNS:
        turns = row.get(name)
        if isinstance(turns, list):
            flat[name] = [_flat_turn(turn) for turn in turns]
    return {**flat, "tools": compact_json(row["tools"])} if "tools" in row else flat


def _flat_turn(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**turn, "tool_calls": compact_json(turn["tool_calls"])} if "tool_calls" in turn else turn


def _deep(row: dict[str, Any]) -> dict[str, Any]:
    """The row that `_flat` and the conversion of its original made this of."""
    for name in _TURNS:
        if isinstance(row.get(name), list):
            row[name] = [_deep_turn(turn) for turn in row[name]]
    for name in ("tools", "original"):
        text = row.pop(name, None)
        if text is not None:
            row[name] = strict_json(text.encode("utf-8"))
    return row


def _deep_turn(turn: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in turn.items() if value is not None}
    return {**given, "tool_calls": strict_json(given["tool_calls"].encode("utf-8"))} if "tool_calls" in given else given

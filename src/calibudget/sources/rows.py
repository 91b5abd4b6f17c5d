"""Rows of data files, one at a time, each with what finds it again.

JSON lines, JSON arrays, CSV and TSV (all of them also as .gz and .zst), Parquet and Arrow. In place of a row that can't
be read stands a DataError, so that whoever reads on may skip it; what ends a file (a torn archive, say) is raised.

A row's `at` rises within its file: the offset of its line (of the decompressed bytes) in JSON lines, its line in CSV,
its number from 1 elsewhere. `place` turns it into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import DataError
from calibudget.sources import columns, lines
from calibudget.sources.limits import LIMITS, Limits
from calibudget.sources.opening import COMPRESSED

#: Fields of a row as its file has them, or why it has none.
Fields = dict[str, object] | DataError
#: Where a row stands in its file, and its fields.
Row = tuple[int, Fields]
#: The rows of a file under limits, or only those at the given ascending places.
_Read = Callable[[Path, str, Limits, Sequence[int] | None], Iterator[Row]]


class _Kind(NamedTuple):
    """How one kind of file is read, and how a row's place in it is told."""

    read: _Read
    place: Callable[[Path, int], str]


def read_rows(path: Path, name: str, limits: Limits = LIMITS, *, wanted: Sequence[int] | None = None) -> Iterator[Row]:
    """The rows of a data file, read as its name's ending says.

    Args:
        path: the file.
        name: what to call it in messages.
        limits: what it may ask of the machine.
        wanted: the `at` of the rows to give, ascending; None for all.

    Raises:
        DataError: an unknown ending, a file that can't be read or decompressed, is no JSON array, no table, or has
            an unusable header; the place is named.
    """
    return _kind(name).read(path, name, limits, wanted)


def place(path: Path, name: str, at: int) -> str:
    """Where a row stands, in words: "file:line" or "file, row n"."""
    return name + _kind(name).place(path, at)


def _kind(name: str) -> _Kind:
    lower = name.lower()
    found = next((kind for ending, kind in _KINDS.items() if lower.endswith(ending)), None)
    if found is None:
        raise DataError(f"{name}: unknown kind of file; known endings are {', '.join(SUFFIXES)}")
    return found


def _line(path: Path, at: int) -> str:
    return f":{lines.line_number(path, at)}"


_TEXTS: Final = {
    ".jsonl": _Kind(lines.read_json_lines, _line),
    ".ndjson": _Kind(lines.read_json_lines, _line),
    ".json": _Kind(lines.read_json, lambda path, at: f", item {at}" if lines.is_array(path) else _line(path, at)),
    ".csv": _Kind(lines.read_csv, lambda _, at: f":{at}"),
    ".tsv": _Kind(lines.read_csv, lambda _, at: f":{at}"),
}
_KINDS: Final = {
    **_TEXTS,
    **{text + ending: kind for ending in COMPRESSED for text, kind in _TEXTS.items()},
    ".parquet": _Kind(columns.read_parquet, lambda _, at: f", row {at}"),
    ".arrow": _Kind(columns.read_arrow, lambda _, at: f", row {at}"),
}
#: The endings that say how a file is read.
SUFFIXES: Final = tuple(_KINDS)

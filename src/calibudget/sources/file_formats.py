"""Rows of data files and of the batches that `datasets` gives, one at a time, each with what finds it again.

JSON lines, JSON arrays, CSV and TSV (all of them also as .gz and .zst), Parquet and Arrow. In place of a row that can't
be read stands a DataError, so that whoever reads on may skip it; what ends a file (a torn archive, say) is raised.

A row's `at` rises within its file: the offset of its line (of the decompressed bytes) in JSON lines, its line in CSV,
its number from 1 elsewhere. `place` turns it into words.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from calibudget.errors import DataError, InputError
from calibudget.messages import counted
from calibudget.sources import json_files
from calibudget.sources.compression import BROKEN, COMPRESSED, open_plain, why_broken
from calibudget.sources.field_meanings import TEACHING, meaning
from calibudget.sources.json_files import MOST_BLANK, OTHER, Block, Fields, Row, is_deeper
from calibudget.sources.limits import LIMITS, Limits
from calibudget.store.canonical import plain_json

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 4096
_MICROSECOND: Final = timedelta(microseconds=1)


class Written(str):
    """What a columnar file holds and JSON doesn't, in a written form: a value like others, but none to be taught.

    Attributes:
        what: what it is, in words.
    """

    what = "bytes that are no UTF-8"

    @classmethod
    def of(cls, value: object) -> Written:
        """A duration in microseconds, bytes in base64, anything else as Python writes it."""
        if isinstance(value, bytes):
            return cls(plain_json(value))
        written = cls(f"{value // _MICROSECOND} us" if isinstance(value, timedelta) else str(value))
        written.what = "a duration" if isinstance(value, timedelta) else f"{value!s:.40}"
        return written


def batch_rows(batch: pa.RecordBatch, limits: Limits) -> Iterator[Fields]:
    """The rows of a record batch; values that JSON doesn't have become what docs/formats.md says.

    A row with a cell that is too long or nested too deeply is a bad one.
    """
    names = batch.schema.names
    if batch.nbytes > limits.line_bytes:
        if batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from batch_rows(batch.slice(0, half), limits)
            yield from batch_rows(batch.slice(half), limits)
            return
        if long := [name for name, column in zip(names, batch.columns, strict=True) if _is_long(column, limits)]:
            yield DataError(f"column {long[0]!r}: the cell is longer than {limits.line_bytes:,} bytes")
            return
    try:
        columns = [_column(column, limits.nesting, name) for name, column in zip(names, batch.columns, strict=True)]
    except (InputError, ValueError):
        if batch.num_rows == 1:
            yield _bad_row(batch, limits.nesting)
            return
        for number in range(batch.num_rows):
            yield from batch_rows(batch.slice(number, 1), limits)
        return
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _is_long(column: pa.Array, limits: Limits) -> bool:
    """Whether a column of one row holds more bytes than a cell may; of a dictionary only what the row refers to."""
    import pyarrow.types as types

    own = column.dictionary_decode() if types.is_dictionary(column.type) else column
    return bool(own.nbytes > limits.line_bytes)


def _column(column: pa.Array, nesting: int, name: str) -> list[object]:
    values = _values(column)
    if _is_plain(column.type):
        return values
    if meaning(name) in TEACHING:  # null says nothing, but NaN says something
        values = ["NaN" if value != value else value for value in values]
    has_bytes = "binary" in str(column.type)
    try:
        plain = [_as_json(value) if has_bytes else plain_json(value) for value in values]
    except InputError:
        plain = [_as_json(value) for value in values]
    if any(is_deeper(value, nesting - 1) for value in plain):
        raise InputError("nested too deeply")
    return plain


def _values(column: pa.Array) -> list[object]:
    """The values of a column; of texts of which one isn't UTF-8, and of times finer than Python's, as they are written.

    Raises:
        ValueError: such a value lies within another.
    """
    import pyarrow as pa
    import pyarrow.types as types

    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except KeyError as error:  # pyarrow looks its own class up by the type's number
        raise ValueError("holds a type that Python has no values for") from error
    except ValueError:
        if types.is_nested(column.type):
            raise
    if types.is_string(column.type) or types.is_large_string(column.type):
        as_bytes = pa.large_binary() if types.is_large_string(column.type) else pa.binary()
        return [_as_json(value) for value in column.view(as_bytes).to_pylist()]
    values = column.cast(pa.int64()).cast(pa.string()).to_pylist()
    return [None if value is None else Written.of(value) for value in values]


def _as_json(value: object) -> object:
    """A value as JSON has it: bytes as text where they are UTF-8; what has no form is marked, and only that."""
    if isinstance(value, dict):
        return {name: _as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else plain_json(value)
    except (InputError, UnicodeDecodeError):
        return Written.of(value)


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
    )


def _bad_row(batch: pa.RecordBatch, nesting: int) -> DataError:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            _column(column, nesting, name)
        except (InputError, ValueError) as error:
            return DataError(
                f"column {name!r}: {why_broken(error) if isinstance(error, UnicodeDecodeError) else error}"
            )
    raise AssertionError("a batch that can't be read has a column that can't")


def read_parquet(path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None) -> Iterator[Row]:
    """The rows of a Parquet file, row group by row group; of wanted rows only the groups that hold some."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = name
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            where = f"{name}:1"
            check_header(file.schema_arrow.names)
            first = 1
            for group in range(file.num_row_groups):
                rows, where = file.metadata.row_group(group).num_rows, f"{name}, row group {group + 1}"
                if wanted is None or _within(wanted, first, first + rows):
                    batches = file.iter_batches(_BATCH_ROWS, row_groups=[group])
                    yield from _numbered(batches, first, limits, wanted)
                first += rows
    except (pa.ArrowException, OSError, UnicodeDecodeError, DataError) as error:
        raise DataError(f"{where}: {why_broken(error)}") from error


def read_arrow(path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None) -> Iterator[Row]:
    """Arrow IPC, the stream form that `datasets` writes or the file form; every batch is checked before it is read."""
    import pyarrow as pa

    try:
        with pa.OSFile(str(path)) as source:
            try:
                batches: Iterable[pa.RecordBatch] = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                source.seek(0)
                file = pa.ipc.open_file(source)
                batches = map(file.get_batch, range(file.num_record_batches))
            yield from _numbered(_checked(batches), 1, limits, wanted)
    except KeyError as error:  # pyarrow looks its own class up by the type's number
        raise DataError(f"{name}: holds a column of a type that Python has no values for") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, DataError) as error:
        raise DataError(f"{name}: {why_broken(error)}") from error


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches whose offsets and texts are sound: the file may come from anyone, and Arrow reads it as it lies."""
    for batch in batches:
        check_header(batch.schema.names)
        batch.validate(full=True)
        yield batch


def _numbered(
    batches: Iterable[pa.RecordBatch], first: int, limits: Limits, wanted: Sequence[int] | None
) -> Iterator[Row]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            if wanted is None:
                yield from enumerate(batch_rows(part, limits), start=first)
            else:
                for at in _within(wanted, first, first + part.num_rows):
                    yield from enumerate(batch_rows(part.slice(at - first, 1), limits), start=at)
            first += part.num_rows


def _within(wanted: Sequence[int], first: int, end: int) -> Sequence[int]:
    return wanted[bisect_left(wanted, first) : bisect_left(wanted, end)]


def read_csv(path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None) -> Iterator[Row]:
    """Every cell is text; a cell may hold line ends. A row with bytes that are no UTF-8 is a bad one."""
    csv.field_size_limit(limits.line_bytes)  # the module's only setting, and a global one; its default is 128 KiB
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    chosen = None if wanted is None else frozenset(wanted)
    line = 1
    try:
        with (
            open_plain(path, limits) as binary,
            io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
        ):
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            header = check_header(next(reader, []))
            if header[0].startswith(("\udcff\udcfe", "\udcfe\udcff")):
                raise DataError(OTHER)
            "".join(header).encode()
            _check_delimiter(header, delimiter)
            if any(cell[:1] == " " for cell in header):  # as in "prompt, completion"
                reader = csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=True)
            header = check_header([cell.strip() for cell in header])
            line = reader.line_num + 1
            blank = 0
            for cells in reader:
                at, line = line, reader.line_num + 1
                blank += not cells
                if blank > MOST_BLANK:
                    raise DataError(f"more than {MOST_BLANK:,} blank lines")
                if cells and (chosen is None or at in chosen):
                    yield at, _cells(header, cells)
    except (*BROKEN, csv.Error, UnicodeError, DataError) as error:
        raise DataError(f"{name}:{line}: {why_broken(error)}") from error


def _check_delimiter(header: list[str], delimiter: str) -> None:
    """Refuse a table whose header is one cell that holds another character which parts cells elsewhere."""
    other = next((one for one in ("\t", ";", ",", "|") if one != delimiter and one in header[0]), None)
    if len(header) == 1 and other is not None:
        way = {"\t": "name the file .tsv", ",": "name the file .csv"}.get(other, "write it with commas")
        raise DataError(f"its cells seem to be parted by {other!r}, not by {delimiter!r}; {way}")


def check_header(names: list[str]) -> list[str]:
    """The names of a table's columns; one may be empty, since that of an index often is.

    Raises:
        DataError: there are none, or two are equal.
    """
    if not any(names) or len(set(names)) != len(names):
        raise DataError(f"the header must name every column, each once, not {names!r:.200}")
    return names


def _cells(header: list[str], cells: list[str]) -> Fields:
    if len(cells) != len(header):
        return DataError(
            f"{counted(len(cells), 'cell')} under {counted(len(header), 'column')}; a cell that holds the mark between "
            "cells, a quotation mark or a line end stands in double quotes"
        )
    try:
        "".join(cells).encode()
    except UnicodeEncodeError as error:
        return DataError(why_broken(error))
    return dict(zip(header, cells, strict=True))


#: The rows of a file under limits, or only those at the given ascending places.
_Read = Callable[[Path, str, Limits, Sequence[int] | None], Iterator[Row | Block]]


class _Kind(NamedTuple):
    """How one kind of file is read, and how a row's place in it is told."""

    read: _Read
    place: Callable[[Path, int], str]


def read_rows(
    path: Path,
    name: str,
    limits: Limits = LIMITS,
    *,
    wanted: Sequence[int] | None = None,
    rows: str | None = None,
) -> Iterator[Row]:
    """The rows of a data file one by one; else as `read_blocks`."""
    return flat(read_blocks(path, name, limits, wanted=wanted, rows=rows))


def flat(found: Iterable[Row | Block]) -> Iterator[Row]:
    """Rows, of which some come as blocks, one by one."""
    for one in found:
        if isinstance(one, Block):
            yield from zip(one.places, one.rows, strict=True)
        else:
            yield one


def read_blocks(
    path: Path,
    name: str,
    limits: Limits = LIMITS,
    *,
    wanted: Sequence[int] | None = None,
    rows: str | None = None,
) -> Iterator[Row | Block]:
    """The rows of a data file, read as its name's ending says; many at once as blocks where they lie so.

    Args:
        path: the file.
        name: what to call it in messages.
        limits: what it may ask of the machine.
        wanted: the `at` of the rows to give, ascending; None for all.
        rows: the field that holds the rows of a JSON file that is one object.

    Raises:
        DataError: an unknown ending, a file that can't be read or decompressed, is no JSON array, no table, or has
            an unusable header; the place is named.
    """
    read = _kind(name).read
    if rows is None:
        return read(path, name, limits, wanted)
    if read is not json_files.read_json:
        raise DataError(f"{name}: is no JSON file, so `rows: {rows}` has no place; drop it")
    return json_files.read_json(path, name, limits, wanted, rows)


def place(path: Path, name: str, at: int, rows: str | None = None) -> str:
    """Where a row stands, in words: "file:line" or "file, row n"."""
    return name + (_kind(name).place(path, at) if rows is None else f", item {at}")


def _kind(name: str) -> _Kind:
    lower = name.lower()
    found = next((kind for ending, kind in _KINDS.items() if lower.endswith(ending)), None)
    if found is None:
        raise DataError(f"{name}: unknown kind of file; known endings are {', '.join(SUFFIXES)}")
    return found


_JSON: Final = _Kind(
    json_files.read_json,
    lambda path, at: f", item {at}" if json_files.opens_with(path) == b"[" else f":{json_files.line_number(path, at)}",
)
_TEXTS: Final = {
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".json": _JSON,
    ".csv": _Kind(read_csv, lambda _, at: f":{at}"),
    ".tsv": _Kind(read_csv, lambda _, at: f":{at}"),
}
_KINDS: Final = {
    **_TEXTS,
    **{text + ending: kind for ending in COMPRESSED for text, kind in _TEXTS.items()},
    ".parquet": _Kind(read_parquet, lambda _, at: f", row {at}"),
    ".arrow": _Kind(read_arrow, lambda _, at: f", row {at}"),
}
#: The endings that say how a file is read.
SUFFIXES: Final = tuple(_KINDS)

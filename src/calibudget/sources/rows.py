"""Rows of data files, one at a time: JSON lines, JSON arrays, CSV and TSV (all of them also gzipped), Parquet, Arrow.

A reader yields each row with its place ("file:line" or "file, row n"), and in place of a row that can't be read a
DataError, so that whoever reads on may skip it; what ends a file (a torn archive, say) is raised.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from calibudget.errors import ArtefactError, DataError, InputError
from calibudget.store import loads_json, plain_json

if TYPE_CHECKING:
    import pyarrow as pa

#: Longest line of a JSON lines file and longest cell of a CSV file, in bytes and characters.
LINE_LIMIT: Final = 64 * 2**20
_BATCH_ROWS: Final = 4096
_BOM: Final = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row of a file: its place for messages, and its fields or why it has none."""

    place: str
    fields: dict[str, object] | DataError


def read_rows(path: Path, name: str) -> Iterator[Row]:
    """The rows of a data file, read as its name's ending says.

    Args:
        path: the file.
        name: what to call it in messages.

    Raises:
        DataError: an unknown ending, a file that can't be read or decompressed, is no JSON array, no table, or has
            an unusable header; the place is named.
    """
    reader = next((reader for ending, reader in _READERS.items() if name.lower().endswith(ending)), None)
    if reader is None:
        raise DataError(f"{name}: unknown kind of file; known endings are {', '.join(SUFFIXES)}")
    return reader(path, name)


def arrow_rows(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[Row]:
    """The rows of Arrow record batches; values that JSON doesn't have become what docs/formats.md says."""
    number = 0
    for batch in batches:
        for fields in batch.to_pylist():
            number += 1
            place = f"{name}, row {number}"
            yield Row(place, _plain_fields(fields, place))


def _plain_fields(fields: dict[str, object], place: str) -> dict[str, object] | DataError:
    try:
        return {key: plain_json(value) for key, value in fields.items()}
    except InputError as error:
        return DataError(f"{place}: {error}")


def _read_json_lines(path: Path, name: str) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, name), start=1):
        if line.isspace():
            continue
        place = f"{name}:{number}"
        yield Row(place, _object(line.removeprefix(_BOM) if number == 1 else line, place))


def _object(line: bytes, place: str) -> dict[str, object] | DataError:
    try:
        value = loads_json(line, place)
    except ArtefactError as error:
        return DataError(str(error))
    if not isinstance(value, dict):
        return DataError(f"{place}: a row must be an object, not {type(value).__name__}")
    return value


def _read_json(path: Path, name: str) -> Iterator[Row]:
    """A JSON array of objects; a file that doesn't begin like one is read as JSON lines."""
    if not _is_array(path, name):
        yield from _read_json_lines(path, name)
        return
    try:
        with _open(path) as handle:
            value = loads_json(handle.read().removeprefix(_BOM), name)
    except (*_BROKEN, ArtefactError) as error:
        raise DataError(_broken(name, error)) from error
    for number, item in enumerate(value if isinstance(value, list) else (), start=1):
        place = f"{name}, item {number}"
        fault = DataError(f"{place}: a row must be an object, not {type(item).__name__}")
        yield Row(place, item if isinstance(item, dict) else fault)


def _is_array(path: Path, name: str) -> bool:
    try:
        with _open(path) as handle:
            return handle.read(1024).removeprefix(_BOM).lstrip().startswith(b"[")
    except _BROKEN as error:
        raise DataError(_broken(name, error)) from error


def _lines(path: Path, name: str) -> Iterator[bytes]:
    number = 0
    try:
        with _open(path) as handle:
            while line := handle.readline(LINE_LIMIT):
                number += 1
                if len(line) == LINE_LIMIT:
                    raise DataError(f"{name}:{number}: the line is longer than {LINE_LIMIT} bytes")
                yield line
    except _BROKEN as error:
        raise DataError(_broken(f"{name}:{number + 1}", error)) from error


def _read_csv(path: Path, name: str) -> Iterator[Row]:
    """Every cell is text; a cell may hold line ends."""
    csv.field_size_limit(LINE_LIMIT)  # the module's only setting, and a global one; its default is 128 KiB
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    line = 1
    try:
        with _open(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            header = _header(next(reader, []), name)
            line = reader.line_num + 1
            for cells in reader:
                place, line = f"{name}:{line}", reader.line_num + 1
                if cells:
                    yield Row(place, _cells(header, cells, place))
    except (*_BROKEN, csv.Error, UnicodeDecodeError) as error:
        raise DataError(_broken(f"{name}:{line}", error)) from error


def _header(names: list[str], name: str) -> list[str]:
    if not names or "" in names or len(set(names)) != len(names):
        raise DataError(f"{name}:1: the header must name every column, each once, not {names!r:.200}")
    return names


def _cells(header: list[str], cells: list[str], place: str) -> dict[str, object] | DataError:
    if len(cells) != len(header):
        return DataError(f"{place}: {len(cells)} cells under {len(header)} columns")
    return dict(zip(header, cells, strict=True))


def _read_parquet(path: Path, name: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _header(file.schema_arrow.names, name)
            yield from arrow_rows(file.iter_batches(_BATCH_ROWS), name)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(_broken(name, error)) from error


def _read_arrow(path: Path, name: str) -> Iterator[Row]:
    """Arrow IPC, the stream form that `datasets` writes or the file form."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                batches: Iterable[pa.RecordBatch] = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                file = pa.ipc.open_file(source)
                batches = map(file.get_batch, range(file.num_record_batches))
            yield from arrow_rows(batches, name)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(_broken(name, error)) from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"))
    return path.open("rb")


def _broken(place: str, error: Exception) -> str:
    if isinstance(error, ArtefactError):
        return str(error)
    if isinstance(error, EOFError):
        return f"{place}: the compressed file is cut short"
    if isinstance(error, UnicodeDecodeError):
        return f"{place}: invalid UTF-8 ({error.reason})"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"{place}: can't be read: {reason}"


_BROKEN: Final = (OSError, EOFError, zlib.error)
_TEXT_READERS: Final[dict[str, Callable[[Path, str], Iterator[Row]]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
_READERS: Final = {
    **_TEXT_READERS,
    **{f"{ending}.gz": reader for ending, reader in _TEXT_READERS.items()},
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}
#: The endings that say how a file is read.
SUFFIXES: Final = tuple(_READERS)

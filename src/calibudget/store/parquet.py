"""Parquet tables whose bytes are a function of their content, and a reader that takes nothing else for one.

The schema metadata holds, under one key, a sealed canonical JSON object; page checksums cover the pages and the
exact schema check covers the footer, so a damaged file is refused or reads as what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from calibudget.errors import ArtefactError
from calibudget.store.canonical import canonical_json, is_sealed, loads_object, read_bytes, sealed
from calibudget.store.files import atomic_file

#: Key of the schema metadata under which a table says what it is.
METADATA_KEY: Final = b"calibudget"
#: Field of that object which holds its self digest.
_SEAL: Final = "sha256"
_ROW_GROUP: Final = 1_048_576


def columns(text: str) -> pa.Schema:
    """The schema of columns written as names and Arrow's types; one that may hold nulls has a "?" behind it."""
    named = [column.split() for column in text.split(",")]
    types = {name: (pa.type_for_alias(kind.rstrip("?")), kind.endswith("?")) for name, kind in named}
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in types.items()])


def write_table(path: Path, table: pa.Table, metadata: Mapping[str, object], *, dictionary: list[str]) -> None:
    """Write a table with its metadata, atomically; same content, same pyarrow, same bytes.

    `metadata` goes under `METADATA_KEY`, a self digest added; `dictionary` names the columns that have few values.
    """
    write_tables(path, table.schema, [table.combine_chunks()], metadata, dictionary=dictionary)


def write_tables(
    path: Path, schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, object], *, dictionary: list[str]
) -> None:
    """`write_table` of a table that comes in pieces, each a row group of its own, of which one is held at a time."""
    text = canonical_json(sealed(metadata, _SEAL))
    own = schema.with_metadata({METADATA_KEY: text})
    options = {"version": "2.6", "compression": "zstd", "compression_level": 3, "use_dictionary": dictionary}
    with (
        atomic_file(path) as handle,
        pq.ParquetWriter(handle, own, write_page_checksum=True, write_statistics=False, **options) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(own), row_group_size=_ROW_GROUP)


def read_table(path: Path, schema: pa.Schema) -> tuple[pa.Table, dict[str, object]]:
    """Read a table that `write_table` wrote, and its metadata.

    Raises:
        ArtefactError: the file is missing or damaged, a column is missing, extra, of another type or holds a null
            that it may not, or the metadata isn't as written.
    """
    table = load_table(path)
    found = table.schema.remove_metadata()
    if not found.equals(schema):
        raise ArtefactError(f"{path.name}: {_schema_fault(found, schema)}")
    metadata = table_metadata(table, path.name)
    if metadata is None:
        raise ArtefactError(f"{path.name}: the schema metadata lacks the key {METADATA_KEY.decode()!r}")
    return table, metadata


def load_table(path: Path) -> pa.Table:
    """Read any Parquet file wholly, its page checksums verified where it has them.

    Raises:
        ArtefactError: the file is missing, damaged or no Parquet.
    """
    data = read_bytes(path)
    try:
        # on this thread alone: Arrow's own threads, if the process ends soon after they began, abort it
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ArtefactError(f"{path.name}: damaged, or no Parquet file: {reason}") from error
    return table


def table_metadata(table: pa.Table, name: str) -> dict[str, object] | None:
    """The object under `METADATA_KEY` without its self digest, None where the table has none.

    Raises:
        ArtefactError: the object isn't JSON or its self digest is another.
    """
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    value = loads_object(text, f"{name}: schema metadata {METADATA_KEY.decode()!r}")
    if not is_sealed(value, _SEAL):
        raise ArtefactError(f"{name}: the schema metadata {METADATA_KEY.decode()!r} isn't what was written")
    del value[_SEAL]
    return value


def _schema_fault(found: pa.Schema, expected: pa.Schema) -> str:
    if found.names != expected.names:
        return f"the columns must be {', '.join(expected.names)}, not {', '.join(found.names)}"
    for ours, theirs in zip(expected, found, strict=True):
        if not ours.equals(theirs):
            return f"column {ours.name!r} must be {_column(ours)}, not {_column(theirs)}"
    return "the schema isn't that of this artefact"


def _column(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' without nulls'}"

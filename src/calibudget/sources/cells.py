"""Rows of CSV and TSV files, plain or compressed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibudget.errors import DataError
from calibudget.messages import counted
from calibudget.sources.compression import BROKEN, open_plain, why_broken
from calibudget.sources.limits import Limits
from calibudget.sources.lines import MOST_BLANK, OTHER


def read_csv(
    path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, dict[str, object] | DataError]]:
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


def _cells(header: list[str], cells: list[str]) -> dict[str, object] | DataError:
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

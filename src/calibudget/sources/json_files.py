"""Rows of JSON files: lines, arrays and objects that hold an array, plain or compressed.

A fast parser reads the rows that nobody could read otherwise, a strict one the rest. Lines that lie side by side and
have the same fields are given as a block.

orjson refuses most of what the strict parser refuses, but takes the last of two equal keys and turns an integer
beyond 64 bits into a double. A row is taken from it only where neither can have happened: it has as many keys as
colons (or as many as colons that could follow a key), and no double as large as those. docs/decisions/0040 has the
reasoning.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np
import orjson

from calibudget.errors import DataError, InputError
from calibudget.sources.compression import BROKEN, COMPRESSED, open_plain, why_broken
from calibudget.sources.field_meanings import meaning
from calibudget.sources.limits import LIMITS, Limits
from calibudget.store.canonical import strict_json

Value = TypeVar("Value")
#: Fields of a row as its file has them, or why it has none.
Fields = dict[str, object] | DataError
#: Where a row stands in its file, and its fields.
Row = tuple[int, Fields]
#: Doubles from here on may have been integers that orjson rounded.
_ROUNDED: Final = float(2**63)
_STRICT: Final = -1
#: Types of values that hold no keys and that the fast parser can be trusted with.
_FLAT: Final = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a file that have the same fields.

    Attributes:
        places: where each stands, ascending.
        rows: their fields.
        columns: the same by the field: texts, numbers, true, false and null.
        kinds: the types of the values of each.
    """

    places: Sequence[int]
    rows: Sequence[dict[str, object]]
    columns: Mapping[str, Sequence[object]]
    kinds: tuple[frozenset[type], ...]


def parse_row(line: bytes, nesting: int) -> Fields:
    """The object that a line in UTF-8 holds, or why it holds none; `nesting` counts levels, itself the first."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _strictly(line, nesting)
    return _checked(value, line, nesting)


def _checked(value: object, line: bytes, nesting: int) -> Fields:
    """What the fast parser found in a line, unless it can't be trusted with it."""
    if type(value) is dict:
        keys = len(value) if _FLAT.issuperset(map(type, value.values())) else _keys(value, nesting)
        if keys != _STRICT and (keys == line.count(b":") or keys == _colons_after_keys(line)):
            return value
    return _strictly(line, nesting)


def _block(places: Sequence[int], values: Sequence[Any], lines: Sequence[bytes], nesting: int) -> Block | None:
    """What the fast parser found in lines, as a block; None where they are none, or one needs a look by itself."""
    if set(map(type, values)) != {dict} or set(map(len, values)) != {len(values[0])}:
        return None
    try:
        columns = {name: list(map(itemgetter(name), values)) for name in values[0]}
    except KeyError:
        return None
    kinds = tuple(frozenset(map(type, column)) for column in columns.values())
    for kind, column in zip(kinds, columns.values(), strict=True):
        if not kind <= _FLAT and not all(
            type(one) in _FLAT or (type(one) is float and abs(one) < _ROUNDED) for one in column
        ):
            return None
    text = np.frombuffer(b"".join(lines), dtype=np.uint8)
    before = text[:-1]
    after_keys = np.count_nonzero((text[1:] == ord(":")) & ((before == ord('"')) | (before <= ord(" "))))
    if after_keys != len(columns) * len(values) and any(
        _checked(value, line, nesting) != value for value, line in zip(values, lines, strict=True)
    ):
        return None
    return Block(places, values, columns, kinds)


def _strictly(line: bytes, nesting: int) -> Fields:
    try:
        value = strict_json(line)
    except InputError as error:
        cause = error.__cause__
        return DataError(
            f"not valid JSON: invalid UTF-8 (the byte 0x{cause.object[cause.start]:02x}); save the file as UTF-8"
            if isinstance(cause, UnicodeDecodeError)
            else str(error)
        )
    return as_row(value, nesting)


def as_row(value: object, nesting: int) -> Fields:
    """A parsed value as a row, or why it is none."""
    if not isinstance(value, dict):
        return DataError(f"a row must be an object, not {'null' if value is None else type(value).__name__}")
    if is_deeper(value, nesting):
        return DataError(f"nested deeper than {nesting} levels")
    return value


def _keys(value: dict[str, object] | list[object], levels: int) -> int:
    """How many keys a value holds at all levels, or `_STRICT` where the fast parser can't be trusted with it."""
    if levels < 1:
        return _STRICT
    count, items = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    for item in items:
        kind = type(item)
        if kind in _FLAT:
            continue
        if kind is dict or kind is list:
            inner = _keys(item, levels - 1)  # type: ignore[arg-type]
            if inner == _STRICT:
                return _STRICT
            count += inner
        elif kind is float and abs(item) >= _ROUNDED:  # type: ignore[arg-type]
            return _STRICT
    return count


def _colons_after_keys(line: bytes) -> int:
    """At least as many as there are keys: colons after a quotation mark or white space."""
    return line.count(b'":') + line.count(b" :") + line.count(b"\t:") + line.count(b"\r:") + line.count(b"\n:")


def is_deeper(value: object, levels: int) -> bool:
    """Whether a value has objects or arrays in more than so many levels."""
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels < 1 or any(is_deeper(item, levels - 1) for item in items)


#: Meanings of lists that a single row holds.
_OF_A_ROW: Final = ("turns", "history", "tools", "functions", "prompt", "response")
_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
#: What is said of a file in another encoding.
OTHER: Final = "is UTF-16; save the file as UTF-8"
_BLOCK: Final = 2**20
#: Lines that are looked at together.
_ROWS: Final = 512
#: Blank lines that one file may have: a compressed file of nothing else would be read for hours.
MOST_BLANK: Final = 1_000_000


def read_json_lines(
    path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None
) -> Iterator[Row | Block]:
    """One object a line; blank lines are no rows, and a line that is too long is a bad one."""
    longest, nesting = limits.line_bytes, limits.nesting
    at = -1
    blank = 0
    try:
        with open_plain(path, limits, in_places=wanted is not None) as handle:
            for places, lines in _wanted_lines(handle, path, longest, wanted):
                values = _loaded(lines, longest)
                block = _block(places, values, lines, nesting) if values else None
                if block is not None:
                    at = places[-1]
                    yield block
                    continue
                for at, whole, value in zip(places, lines, values or repeat(None), strict=False):
                    line = whole.removesuffix(b"\n")
                    if len(line) > longest:
                        yield at, DataError(f"the line is longer than {longest:,} bytes")
                        continue
                    if values:
                        fields = _checked(value, line, nesting)
                    else:
                        fields = parse_row(line, nesting) if line else DataError("blank")
                    if isinstance(fields, DataError):
                        bare = line.removeprefix(_BOM) if at == 0 else line
                        if not bare or bare.isspace():
                            blank += 1
                            if blank > MOST_BLANK:
                                raise DataError(f"more than {MOST_BLANK:,} blank lines")
                            continue
                        fields = parse_row(bare, nesting)
                    yield at, fields
    except (*BROKEN, DataError) as error:
        number = 1 if at < 0 else line_number(path, at) + 1
        raise DataError(f"{name}:{number}: {why_broken(error)}") from error


def _loaded(lines: Sequence[bytes], longest: int) -> list[Any]:
    """What the fast parser finds in several lines; nothing where it refuses one, or one is long."""
    with suppress(orjson.JSONDecodeError):
        if len(lines) > 1 and max(map(len, lines)) <= min(longest, _BLOCK):
            return list(map(orjson.loads, lines))
    return []


def line_number(path: Path, at: int) -> int:
    """The number from 1 of the line that begins at an offset; of a torn file the last one that can be read."""
    number, left = 1, at
    try:
        with open_plain(path, LIMITS) as handle:
            while left > 0 and (block := handle.read(min(_BLOCK, left))):
                number += block.count(b"\n")
                left -= len(block)
    except (*BROKEN, DataError):
        pass
    return number


def _wanted_lines(
    handle: IO[bytes], path: Path, longest: int, wanted: Sequence[int] | None
) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
    if wanted is None:
        return _lines(handle, longest)
    if path.suffix.lower() in COMPRESSED:
        whole = (pair for places, lines in _lines(handle, longest) for pair in zip(places, lines, strict=True))
        return (((at,), (line,)) for at, line in at_places(whole, wanted))
    return (((at,), (handle.readline(longest + 2),)) for at in map(handle.seek, wanted))


def at_places(rows: Iterable[tuple[int, Value]], wanted: Sequence[int]) -> Iterator[tuple[int, Value]]:
    """Of rows those at the given ascending places; nothing is read after the last."""
    chosen = frozenset(wanted)
    for at, row in rows if wanted else ():
        if at in chosen:
            yield at, row
        if at >= wanted[-1]:
            return


def _lines(handle: IO[bytes], longest: int) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
    """All lines, some at a time: their offsets, and they with their ends; of one too long as much as shows it."""
    at, rest = 0, b""
    blocks = iter(partial(handle.read1, _BLOCK), b"")  # type: ignore[attr-defined]
    for block in blocks:
        whole = io.BytesIO(rest + block).readlines()  # twice as quick as to split
        rest = b"" if whole[-1].endswith(b"\n") else whole.pop()
        for start in range(0, len(whole), _ROWS):
            lines = whole[start : start + _ROWS]
            *places, at = accumulate(map(len, lines), initial=at)
            yield places, lines
        if len(rest) > longest:
            yield (at,), (rest,)
            at += len(rest)
            rest = b""
            for block in blocks:
                skipped, end, rest = block.partition(b"\n")
                at += len(skipped) + len(end)
                if end:
                    break
    for line in io.BytesIO(rest):
        yield (at,), (line,)
        at += len(line)


def read_json(
    path: Path, name: str, limits: Limits, wanted: Sequence[int] | None = None, rows: str | None = None
) -> Iterator[Row | Block]:
    """JSON lines; or an array of objects, or one object with such an array under `rows`, held in memory."""
    try:
        items = _items(path, limits, rows)
    except (*BROKEN, DataError) as error:
        raise DataError(f"{name}: {why_broken(error)}") from error
    if items is None:
        yield from read_json_lines(path, name, limits, wanted)
        return
    numbered = enumerate(items, start=1)
    for number, item in numbered if wanted is None else at_places(numbered, wanted):
        yield number, as_row(item, limits.nesting)


def _items(path: Path, limits: Limits, rows: str | None) -> list[object] | None:
    """The rows of a file that is one JSON value; None where its lines are rows."""
    opens = opens_with(path) if rows is None else b""
    if opens in (b"\xff", b"\xfe"):
        raise DataError(OTHER)
    if opens == b"{":
        _refuse_wrapped(path, limits)
    if rows is None and opens != b"[":
        return None
    value = _value(path, limits)
    if rows is None:
        return value if isinstance(value, list) else []
    items, _ = _parted(value, rows)
    if not isinstance(items, list):
        found = f"has the fields {', '.join(value)}" if isinstance(value, dict) else "is an array"
        lists = ", ".join(f"`rows: {name}`" for name in _lists_of_rows(value))
        hint = f"; lists of rows are {lists}" if lists else ""
        raise DataError(f"`rows: {rows}` names no list of it, since it {found}{hint}")
    return items


def _lists_of_rows(value: object) -> list[str]:
    """The fields of an object, with a dot those of objects in it, that hold a list of objects and no turns of a row."""
    fields = value if isinstance(value, dict) else {}
    names = [*fields, *(f"{key}.{name}" for key, one in fields.items() if isinstance(one, dict) for name in one)]
    found = {name: _parted(value, name)[0] for name in names if meaning(name.rpartition(".")[2]) not in _OF_A_ROW}
    return [name for name, one in found.items() if isinstance(one, list) and one and isinstance(one[0], dict)]


def beside_rows(path: Path, name: str, limits: Limits, rows: str) -> dict[str, object]:
    """What an object holds beside its rows, at each level on the way to them; deeper fields with a dot in their names.

    Raises:
        DataError: the file can't be read.
    """
    try:
        return _parted(_value(path, limits), rows)[1]
    except (*BROKEN, DataError) as error:
        raise DataError(f"{name}: {why_broken(error)}") from error


def _parted(value: object, rows: str) -> tuple[object, dict[str, object]]:
    """What stands under a name, whose parts may be parted by dots, None where nothing does; and what is beside it."""
    beside: dict[str, object] = {}
    at, rest = "", rows
    while isinstance(value, dict) and rest not in value:
        first, _, rest = rest.partition(".")
        beside |= {at + key: one for key, one in value.items() if key != first}
        at, value = f"{at}{first}.", value.get(first)
    if not isinstance(value, dict):
        return None, beside
    return value[rest], beside | {at + key: one for key, one in value.items() if key != rest}


def opens_with(path: Path) -> bytes:
    """How a file begins that is one value and no lines: "[" of an array, "{" of an object over several lines.

    Of a text in UTF-16 it is the first byte of its mark. One that can't be read has lines, so that its reader can say
    where it breaks.
    """
    try:
        status = path.stat()
        return _looked_up(path, status.st_size, status.st_mtime_ns)
    except (*BROKEN, DataError):
        return b""


@lru_cache
def _looked_up(path: Path, size: int, modified: int) -> bytes:  # noqa: ARG001 - a file that changed is looked up again
    with open_plain(path, LIMITS) as handle:
        lines = iter(partial(handle.readline, LIMITS.line_bytes), b"")
        first = next((line for line in lines if line.removeprefix(_BOM).strip()), b"").removeprefix(_BOM).strip()
        if first.startswith(_UTF_16):
            is_one = b"\0" in first
        elif first.startswith(b"["):
            is_one = (_ends(first) or -1) < 0 or all(line.isspace() for line in lines)
        else:
            is_one = first.startswith(b"{") and _ends(first) is None
    return first[:1] if is_one else b""


def _ends(data: bytes, errors: str = "strict") -> int | None:
    """Where the JSON value ends that a text begins with; None where the text ends first, -1 where it is no JSON."""
    try:
        text = data.decode("utf-8", errors)
        return len(text[: json.JSONDecoder().raw_decode(text)[1]].encode())
    except json.JSONDecodeError as error:
        return None if error.pos >= len(text) else -1
    except (ValueError, RecursionError):  # not UTF-8, nested too deep, or an integer of too many digits
        return -1


def _refuse_wrapped(path: Path, limits: Limits) -> None:
    """Refuse a file of one object, or of several over many lines each; one that is no JSON is left to its lines."""
    try:
        value = _value(path, limits)
    except DataError:
        with open_plain(path, limits) as handle:
            data = handle.read(limits.line_bytes).removeprefix(_BOM).lstrip()
        end = _ends(data, "ignore") or -1
        if end > 0 and b"\n" in data[:end].rstrip() and data[end:].lstrip()[:1] in (b"{", b","):
            raise DataError(
                "holds JSON objects over several lines each; write each into one line (`jq -c . FILE`), or all into an "
                "array"
            ) from None
        return
    if isinstance(value, dict):
        lists = _lists_of_rows(value)
        way = "write a row in one line (`jq -c . FILE`)"
        if lists:
            way = f"name the field of the rows in the recipe, as in `rows: {lists[0]}`"
        elif value and all(isinstance(one, list) and one and not isinstance(one[0], dict) for one in value.values()):
            way = "its lists seem to be columns: write a row in one line, with a value of each"
        raise DataError(f"is one JSON object with the fields {', '.join(value)}, where rows are expected; {way}")


def _value(path: Path, limits: Limits) -> object:
    with open_plain(path, limits) as handle:
        data = handle.read(limits.array_bytes + 1)
    if len(data) > limits.array_bytes:
        kind = "array" if data.removeprefix(_BOM).lstrip().startswith(b"[") else "object"
        raise DataError(f"a JSON {kind} of more than {limits.array_bytes:,} bytes; give it as JSON lines (.jsonl)")
    try:
        return strict_json(data.removeprefix(_BOM))
    except InputError as error:
        raise DataError(str(error)) from error

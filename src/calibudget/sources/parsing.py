"""One JSON row from its bytes: a fast parser for rows that nobody could read otherwise, a strict one for the rest.

orjson refuses most of what the strict parser refuses, but takes the last of two equal keys and turns an integer
beyond 64 bits into a double. A row is taken from it only where neither can have happened: it has as many keys as
colons (or as many as colons that could follow a key), and no double as large as those. docs/decisions/0040 has the
reasoning.
"""

from __future__ import annotations

from typing import Final

import orjson

from calibudget.errors import DataError, InputError
from calibudget.store import strict_json

#: Doubles from here on may have been integers that orjson rounded.
_ROUNDED: Final = float(2**63)
_STRICT: Final = -1


def parse_row(line: bytes, nesting: int) -> dict[str, object] | DataError:
    """The object that a line holds, or why it holds none.

    Args:
        line: UTF-8 bytes of one JSON value, white space around it allowed.
        nesting: how many levels of objects and arrays it may have, itself the first.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _strictly(line, nesting)
    if type(value) is dict:
        keys = _keys(value, nesting)
        if keys != _STRICT and (keys == line.count(b":") or keys == _colons_after_keys(line)):
            return value
    return _strictly(line, nesting)


def _strictly(line: bytes, nesting: int) -> dict[str, object] | DataError:
    try:
        value = strict_json(line)
    except InputError as error:
        return DataError(str(error))
    return as_row(value, nesting)


def as_row(value: object, nesting: int) -> dict[str, object] | DataError:
    """A parsed value as a row, or why it is none."""
    if not isinstance(value, dict):
        return DataError(f"a row must be an object, not {type(value).__name__}")
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
        if kind is str or kind is int or item is None:
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

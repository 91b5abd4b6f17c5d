"""Canonical JSON (RFC 8785) out, strict JSON in: one value has one byte string, and the other way round.

What rows hold that JSON has no form for is said as JSON says it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from io import BufferedReader
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import rfc8785

from calibudget.errors import ArtefactError, InputError, refuse_as
from calibudget.messages import shown
from calibudget.values import MAX_SAFE_INTEGER


def canonical_json(value: object) -> bytes:
    """The RFC 8785 bytes of a JSON value: sorted keys, no white space, shortest round-trip numbers, UTF-8.

    Doubles come back bit for bit, except that -0.0 becomes 0. Tuples are arrays.

    Raises:
        InputError: NaN or an infinity, an integer beyond 2**53 - 1, a lone surrogate, a key that is no string,
            a type that JSON doesn't have, or nesting too deep to follow; the field is named.
    """
    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]
    except RecursionError as error:
        raise InputError("the value is nested too deeply for canonical JSON") from error
    except ValueError as error:  # rfc8785's own errors, UnicodeEncodeError from a key, integers too long to write
        raise InputError(_fault(value)) from error


def sha256_hex(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sealed(value: Mapping[str, object], field: str) -> dict[str, object]:
    """The object with its self digest in `field`: SHA-256 of its canonical bytes without that field."""
    body = {key: item for key, item in value.items() if key != field}
    return {**body, field: sha256_hex(canonical_json(body))}


def is_sealed(value: Mapping[str, object], field: str) -> bool:
    """Whether the object holds in `field` the self digest that `sealed` gives it."""
    try:
        return value.get(field) == sealed(_with_doubles(value), field)[field]
    except (InputError, OverflowError):  # the latter of an integer that no double is near
        return False


def loads_object(data: bytes, name: str) -> dict[str, object]:
    """`strict_json` of an object (paper, appendix "Tokenization, Sketching, and File Binding").

    `name` is what errors call the bytes, a file's name or that and a line.

    Raises:
        ArtefactError: they are no such JSON, or their root is something else.
    """
    with refuse_as(ArtefactError, name, InputError):
        value = strict_json(data)
    if not isinstance(value, dict):
        raise ArtefactError(f"{name}: the root must be an object, not {type(value).__name__}")
    return value


def strict_json(data: bytes) -> object:
    """Read one JSON value, refusing what readers disagree about.

    Raises:
        InputError: invalid UTF-8 or JSON, a byte order mark, a key given twice, NaN, an infinity or a number that
            overflows to one, a lone surrogate, or nesting too deep to follow.
    """
    try:
        text = data.decode()
        if text.startswith("\ufeff"):
            raise ValueError("it begins with a byte order mark (BOM)")
        value: object = _DECODER.decode(text)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise InputError("nested too deeply") from error
    except UnicodeEncodeError as error:
        raise InputError("a string holds a lone surrogate") from error
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, the hooks' refusals, overlong integers
        raise InputError(f"not valid JSON: {error}") from error
    return value


def plain_json(value: object) -> object:
    """A value of an original record as JSON says it (docs/formats.md): nothing lost but NaN, which becomes null.

    Raises:
        InputError: an infinity, a key that is no string, or a type without a form.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                raise InputError("an infinity has no JSON form")
            return None if math.isnan(value) else value
        case Mapping():
            if strange := [key for key in value if not isinstance(key, str)]:
                raise InputError(f"the key {strange[0]!r} is no string")
            return {key: plain_json(item) for key, item in value.items()}
        case list() | tuple():
            return [plain_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case np.generic() | np.ndarray():
            return plain_json(value.tolist())
        case _:
            raise InputError(f"a value of type {type(value).__name__} has no JSON form")


def compact_json(value: object) -> str:
    """JSON without white space, keys in their order and integers of any size, unlike the canonical form."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_object(path: Path) -> dict[str, object]:
    """`loads_object` of a whole file, named by its last part.

    Raises:
        ArtefactError: also when the file is missing or can't be read.
    """
    return loads_object(read_bytes(path), path.name)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading, buffered; a FIFO without a writer isn't waited for.

    Raises:
        OSError: it is missing or can't be read.
        ArtefactError: it is a FIFO, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtefactError(f"{path.name}: is no regular file; evidence binds regular files only")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        ArtefactError: the file is missing, no regular file or can't be read.
    """
    with refuse_as(ArtefactError, f"{path.name}: can't be read", OSError), open_regular(path) as handle:
        return handle.read()


def _fault(value: object, at: str = "") -> str | None:
    """Which part of a value has no JSON form, by its path, and why; None of a value that has one."""
    try:
        rfc8785.dumps(value)  # type: ignore[arg-type]
    except ValueError as error:
        items = (
            value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        inner = (_fault(item, f"{at}.{key}" if at else str(key)) for key, item in items)
        found = next(filter(None, inner), None)
        if found is not None:
            return found
        if isinstance(value, int):
            return f"{at or 'the value'} is {shown(value)}, beyond 2**53 - 1, where JSON's integers end"
        return f"{at or 'the value'} has no canonical JSON form: {error}"
    return None


def _with_doubles(value: Mapping[str, object]) -> dict[str, object]:
    """The object with doubles for integers beyond 2**53 - 1: 1e17 is written 100000000000000000 and read as an int."""

    def convert(item: object) -> object:
        if isinstance(item, Mapping):
            return {key: convert(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [convert(inner) for inner in item]
        if isinstance(item, int) and abs(item) > MAX_SAFE_INTEGER:
            return float(item)
        return item

    return {key: convert(item) for key, item in value.items()}


def _unique_pairs(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    pairs = list(pairs)
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return result


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large for a double")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_pairs, parse_float=_finite_float, parse_constant=_refuse_constant
)

"""Messages between judge and program: one JSON line each, built-in values by value, all else by number."""

from __future__ import annotations

import builtins
import json
import socket
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

#: Longest message taken, in bytes; what exceeds it is refused before it is parsed.
MAX_MESSAGE: Final = 32 * 1024 * 1024

_SEQUENCES: Final[dict[str, Any]] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
_TEXTS: Final[dict[str, Any]] = {"decimal": Decimal, "fraction": Fraction}


class ClosedError(Exception):
    """The other side is gone, or said something that is no message."""


class Channel:
    """One end of the socket: whole JSON values in, whole JSON values out."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader = self._socket.makefile("rb")

    def send(self, message: object) -> None:
        """Sends one JSON value."""
        try:
            self._socket.sendall(json.dumps(message).encode("ascii") + b"\n")
        except OSError as error:
            raise ClosedError(str(error)) from None

    def receive(self) -> Any:
        """Waits for one JSON value; ClosedError where there is none or it is too long."""
        try:
            line = self._reader.readline(MAX_MESSAGE)
            if not line.endswith(b"\n"):
                raise ClosedError("no whole message came")
            return json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            raise ClosedError(f"not a message: {error}") from None


def pack(value: object, by_number: Callable[[object], Any]) -> Any:
    """The JSON form of a value; `by_number` gives that of a value that is no built-in data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, float):
        return {"float": float.hex(value)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return {"complex": [float.hex(value.real), float.hex(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__: value.hex()}
    if isinstance(value, range):
        return {"range": [hex(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, Decimal | Fraction):
        return {"decimal" if isinstance(value, Decimal) else "fraction": str(value)}
    if isinstance(value, type):
        name = type.__dict__["__name__"].__get__(value)
        return {"type": name} if vars(builtins).get(name) is value else by_number(value)
    if isinstance(value, dict):
        return {"dict": [[pack(key, by_number), pack(item, by_number)] for key, item in dict.items(value)]}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [pack(item, by_number) for item in kind.__iter__(value)]}
    return by_number(value)


def unpack(form: Any, from_number: Callable[[Any], object]) -> Any:
    """The value of a JSON form; `from_number` gives that of forms that `by_number` made."""
    if form is None or isinstance(form, bool | str):
        return form
    [(name, content)] = form.items()
    if name in _SEQUENCES:
        return _SEQUENCES[name](unpack(item, from_number) for item in content)
    if name == "dict":
        return {unpack(key, from_number): unpack(item, from_number) for key, item in content}
    if name == "int":
        return int(content, 16)
    if name == "float":
        return float.fromhex(content)
    if name == "complex":
        return complex(*map(float.fromhex, content))
    if name in ("bytes", "bytearray"):
        return (bytes if name == "bytes" else bytearray).fromhex(content)
    if name == "range":
        return range(*(int(part, 16) for part in content))
    if name == "type" and isinstance(kind := vars(builtins).get(content), type):
        return kind
    if name in _TEXTS:
        return _TEXTS[name](content)
    return from_number(form)

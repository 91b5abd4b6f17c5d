"""What runs inside the sandboxes: standard library only, imported there by a bare interpreter.

Two processes in two sandboxes share one socket. The *judge* holds the tests and never executes a line of the
program under test; the *program* holds that program and never sees a test. Calls go one way as plain data,
results come back as plain data, so nothing that the program patches, prints or exits with can pass for a verdict.

Messages are one JSON line each: built-in values go by value, all else by number.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import operator
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
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


_OPERATIONS: dict[str, Callable[..., object]] = {
    "call": lambda target, positional, named: target(*positional, **named),
    "attribute": getattr,
    "set_attribute": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "length": len,
    "truth": bool,
    "text": str,
    "iterate": iter,
    "next": next,
}


def limit(limits: Mapping[str, int]) -> None:
    """Sets this process's limits for good: {"AS": bytes, "CPU": seconds, …}, names of `resource.RLIMIT_*`."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def serve(channel: Channel) -> None:
    """Answers the judge until it leaves. The values that it can't be sent whole stay here, known by a number."""
    kept: list[object] = []
    namespace: dict[str, object] = {"__name__": "program"}

    def keep(value: object) -> Any:
        kept.append(value)
        return {"there": len(kept) - 1}

    def run(request: Any) -> object:
        if request[0] == "load":
            exec(compile(request[1], "program.py", "exec"), namespace)  # noqa: S102 - this is the sandbox
            return None
        if request[0] == "name":
            return namespace[request[1]]
        return _OPERATIONS[request[0]](*(unpack(part, lambda form: kept[form["there"]]) for part in request[1:]))

    channel.send("hello")
    while True:
        request = channel.receive()
        try:
            reply = {"value": pack(run(request), keep)}
        except BaseException as error:  # SystemExit too is only an answer
            reply = {"raised": [type(error).__name__, str(error)[:500]]}
        channel.send(reply)


def program(descriptor: int, limits: Mapping[str, int]) -> None:
    """Entry of the program's process."""
    limit(limits)
    with contextlib.suppress(ClosedError):
        serve(Channel(descriptor))


class RemoteError(Exception):
    """The program raised something that is no built-in exception."""


class BrokenError(Exception):
    """The program's sandbox never came up: no fault of the program."""


class Remote:
    """A value that stayed with the program. It is equal to nothing but itself, whatever the program says."""

    def __init__(self, client: Client, form: Any) -> None:
        self.__dict__.update(_client=client, _form=form)

    def _ask(self, operation: str, *parts: object) -> Any:
        return self.__dict__["_client"].ask(operation, self, *parts)

    def __call__(self, *positional: object, **named: object) -> Any:  # noqa: D102
        return self._ask("call", positional, named)

    def __getattr__(self, name: str) -> Any:
        return self._ask("attribute", name)

    def __setattr__(self, name: str, value: object) -> None:
        self._ask("set_attribute", name, value)

    def __getitem__(self, key: object) -> Any:
        return self._ask("item", key)

    def __setitem__(self, key: object, value: object) -> None:
        self._ask("set_item", key, value)

    def __len__(self) -> int:
        return int(self._ask("length"))

    def __bool__(self) -> bool:
        return bool(self._ask("truth"))

    def __str__(self) -> str:
        return str(self._ask("text"))

    def __iter__(self) -> Iterator[Any]:
        remote = self._ask("iterate")
        while True:
            try:
                item = remote._ask("next")
            except StopIteration:
                return
            yield item

    def __next__(self) -> Any:
        return self._ask("next")


class Client:
    """Asks the program's process, one question at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def ask(self, operation: str, *parts: object) -> Any:
        """Sends one request and gives the reply's value, or raises what the program raised."""
        return self._reply([operation, *(pack(part, self._by_number) for part in parts)])

    def load(self, program: str) -> None:
        """Waits for the program's process and has it run the program's own text."""
        try:
            self._channel.receive()
        except ClosedError as error:
            raise BrokenError(str(error)) from None
        self._reply(["load", program])

    def name(self, name: str) -> Any:
        """The value of one of the program's global names; KeyError where it has none."""
        return self._reply(["name", name])

    def _by_number(self, value: object) -> Any:
        if isinstance(value, Remote):
            return value.__dict__["_form"]
        raise TypeError(f"a test can't hand a {type(value).__name__} to the program")

    def _reply(self, request: object) -> Any:
        self._channel.send(request)
        reply = self._channel.receive()
        if "raised" in reply:
            raise _raised(*reply["raised"])
        return unpack(reply["value"], lambda form: Remote(self, form))


def _raised(name: str, text: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RemoteError(f"{name}: {text}")


def verdict(job: Mapping[str, Any], channel: Channel) -> tuple[str, str]:
    """Runs one job's tests: ("passed" | "failed" | "error" | "died" | "broken", a reason)."""
    client = Client(channel)
    tests: dict[str, object] = {"__name__": "tests"}
    try:
        exec(compile(job["prelude"], "prelude.py", "exec"), tests)  # noqa: S102 - this is the sandbox
        client.load(job["program"])
        for name in job["names"]:
            tests.pop(name, None)
            try:
                tests[name] = client.name(name)
            except KeyError:
                continue
        exec(compile(job["tests"], "tests.py", "exec"), tests)  # noqa: S102 - this is the sandbox
    except BrokenError as error:
        return "broken", str(error)
    except ClosedError as error:
        return "died", str(error)
    except AssertionError as error:
        return "failed", _where(error)
    except BaseException as error:
        return "error", f"{type(error).__name__}: {str(error)[:300]}"
    return "passed", ""


def _where(error: AssertionError) -> str:
    trace = error.__traceback__
    lines = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "tests.py":
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"line {lines[-1]} of the tests" if lines else "an assertion of the program's own"


def judge(descriptor: int, limits: Mapping[str, int]) -> None:
    """Entry of the judge's process: the job on standard input, "ready" and the verdict on standard output."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    job = json.load(sys.stdin)
    limit(limits)
    print("ready", file=out, flush=True)
    print(json.dumps(verdict(job, Channel(descriptor))), file=out, flush=True)
    os._exit(0)

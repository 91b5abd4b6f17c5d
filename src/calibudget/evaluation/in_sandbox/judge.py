"""The judge's side: runs the tests against a stand-in of the program and says how they ended."""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .program import limit
from .wire import Channel, ClosedError, pack, unpack


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


def main(descriptor: int, limits: Mapping[str, int]) -> None:
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

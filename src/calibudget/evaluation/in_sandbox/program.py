"""The program's side: loads the code under test and does what the judge asks of it."""

from __future__ import annotations

import contextlib
import operator
import resource
from collections.abc import Callable, Mapping
from typing import Any

from .wire import Channel, ClosedError, pack, unpack

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


def main(descriptor: int, limits: Mapping[str, int]) -> None:
    """Entry of the program's process."""
    limit(limits)
    with contextlib.suppress(ClosedError):
        serve(Channel(descriptor))

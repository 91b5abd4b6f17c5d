"""What runs in a worker: a handler, which answers requests, JSON objects both ways.

`calibudget.workers` starts it as a process, `python -m calibudget.worker_main MODULE:HANDLER`, or as an actor.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from calibudget.errors import CalibudgetError, InterruptedRunError
from calibudget.hardware import temporary_folder

#: Bytes of a file that are sent at a time.
_PIECE: Final = 4 * 2**20


class Handler(Protocol):
    """A worker's own part: made in the worker, without arguments, of a class that can be imported there."""

    def reply(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """The reply to one request; a key `error` in it is refused."""
        ...


class Served:
    """A handler in its worker, with replies as JSON texts.

    Args:
        handler: the module and the name of its class.
        folder: that the pool's process stands in, from which relative paths start.
    """

    def __init__(self, handler: str, folder: str) -> None:
        with suppress(OSError):  # another machine may lack the folder; a file that isn't found is named
            os.chdir(folder)
        module, _, name = handler.partition(":")
        self._handler: Handler = getattr(import_module(module), name)()

    def reply(self, request: str | bytes) -> str:
        """The reply to a request, or the error that calibudget raised on purpose."""
        return json.dumps(self._reply(json.loads(request)))

    def pieces(self, request: str) -> Iterator[str | bytes]:
        """The reply to a request, then the bytes of the file that it names."""
        with tempfile.TemporaryDirectory(prefix="calibudget-", dir=temporary_folder()) as folder:
            reply = self._reply({**json.loads(request), "folder": folder})
            yield json.dumps(reply)
            if "path" in reply:
                with Path(str(reply["path"])).open("rb") as handle:
                    while piece := handle.read(_PIECE):
                        yield piece

    def _reply(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        try:
            return self._handler.reply(request)
        except InterruptedRunError:
            raise  # this worker is to end; another one goes on
        except CalibudgetError as error:
            return {"error": str(error), "kind": type(error).__name__}


def main() -> None:
    """Serve requests, a JSON object a line, until the input ends: no worker outlives the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the pool's to handle
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print
    served = Served(sys.argv[1], ".")
    for line in sys.stdin.buffer:
        replies.write(served.reply(line).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()

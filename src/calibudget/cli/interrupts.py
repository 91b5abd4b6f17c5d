"""How a command ends when Ctrl-C or SIGTERM stops it: what is raised, and what a person is told."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: The commands that go on with `--resume`, and those that go on when they are given again.
RESUMED: Final = {"run", "train", "evaluate"}
REPEATED: Final = {"score", "influence", "study run"}
#: Signals that come so soon after one, in seconds, say the same as it did: they don't disturb what it set going.
_ONE_WISH: Final = 1.0


class Stop(BaseException):
    """A signal asked the command to stop; not a KeyboardInterrupt, which the option parser turns into its own."""


class Listener:
    """Raises `Stop` where the command is when a signal comes."""

    def __init__(self) -> None:
        self._raised = -math.inf

    def hear(self, _signal: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        if time.monotonic() - self._raised > _ONE_WISH:
            self._raised = time.monotonic()
            raise Stop

    def repeat(self, dropped: sys.UnraisableHookArgs) -> None:
        """Raise `Stop` again, a little later, where it came while Python could only drop it (in a finalizer, say)."""
        if not isinstance(dropped.exc_value, Stop):
            sys.__unraisablehook__(dropped)
            return
        import threading

        self._raised = -math.inf
        again = threading.Timer(0.05, _interrupt)
        again.daemon = True
        again.start()


def _interrupt() -> None:
    if os.name == "nt":
        signal.raise_signal(signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)  # to the process, so that a main thread that waits is woken


def say(message: Warning | str, *_where: object, **_more: object) -> None:
    """A line for people on stderr."""
    from calibudget.messages import printable, redacted

    line = printable(redacted(f"calibudget: {message}"), kept="\n\t")
    with suppress(OSError):  # a full or broken stderr changes no exit code
        print(line, file=sys.stderr, flush=True)


def how_to_go_on() -> str:
    """What the command that was given can be resumed with."""
    command, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if command == "study" and arguments:
        command = f"study {arguments[0]}"
    writes = not {"--dry-run", "--rejudge"}.intersection(arguments)
    if command in RESUMED and writes:
        return "nothing finished is lost, the same command with `--resume` goes on from here"
    if command in REPEATED and writes:
        return "nothing finished is lost, the same command goes on from here"
    return "there is nothing to resume, give the command again"

"""Where a command begins and ends: from the first moment to the last, Ctrl-C and SIGTERM have an exit code and a line.

It imports nothing that takes time; the commands are imported after the signals are taken.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: The commands that go on with `--resume`, and those that go on when they are given again.
RESUMED: Final = {"run", "train", "evaluate"}
REPEATED: Final = {"score", "influence", "warm-up", "study run", "study testbed"}


class Stop(BaseException):
    """A signal asked the command to stop; not a KeyboardInterrupt, which the option parser turns into its own."""


def entry() -> None:
    """Run the command line and leave with its exit code."""
    for number in _SIGNALS:
        signal.signal(number, _stop)
    code = None
    with suppress(Stop):
        code = _run()
    for number in _SIGNALS:  # what is done is done, and a second one takes neither the line nor the code away
        signal.signal(number, signal.SIG_IGN)
    if code is None:
        say(f"interrupted; {how_to_go_on()}")
        code = 3
    sys.exit(code)


def say(message: Warning | str, *_where: object, **_more: object) -> None:
    """A line for people on stderr."""
    with suppress(OSError):  # a full or broken stderr changes no exit code
        print(f"calibudget: {message}", file=sys.stderr, flush=True)


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


def _run() -> int:
    for name in ("stdout", "stderr"):  # a closed one is None, and what is printed to None goes to the other
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    warnings.showwarning = say
    from calibudget.cli.main import exit_code

    return exit_code()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stop

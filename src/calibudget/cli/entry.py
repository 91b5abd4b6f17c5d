"""Where a command begins and ends: from the first moment to the last, Ctrl-C and SIGTERM have an exit code and a line.

It imports next to nothing: all else comes after the signals are taken.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress

from calibudget.cli.interrupts import SIGNALS, Listener, Stop, how_to_go_on, say


def entry() -> None:
    """Run the command line and leave with its exit code."""
    listener = Listener()
    sys.unraisablehook = listener.repeat
    for number in SIGNALS:
        signal.signal(number, listener.hear)
    code = None
    with suppress(Stop):
        code = _run()
    for number in SIGNALS:  # what is done is done, and another one takes neither the line nor the code away
        signal.signal(number, signal.SIG_IGN)
    if code is None:
        say(f"interrupted; {how_to_go_on()}")
        code = 3
    sys.exit(code)


def _run() -> int:
    from pathlib import Path

    for name in ("stdout", "stderr"):  # a closed one is None, and what is printed to None goes to the other
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    warnings.showwarning = say
    warnings.simplefilter("ignore", SyntaxWarning)  # of other packages' files, when Python first compiles them
    from calibudget.cli.main import exit_code

    return exit_code()

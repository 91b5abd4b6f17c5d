"""A scoring worker: one process with one scorer, which reads requests and writes replies, a JSON object a line.

Started by `calibudget.scoring.processes` as `python -m calibudget.scoring.worker`. It ends when its input ends, so it
never outlives the process that started it, however that one dies; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from calibudget.scoring.desk import Desk


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to handle
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    desk = Desk()
    for line in sys.stdin.buffer:
        replies.write(json.dumps(desk.reply(json.loads(line))).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()

"""A reader in another process: it reads requests and writes replies, a JSON object a line.

Started by `calibudget.sources.readers` as `python -m calibudget.sources.worker`. It ends when its input ends, so it
never outlives the process that started it; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from calibudget.sources.asking import reply


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to handle
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        replies.write(json.dumps(reply(line)).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()

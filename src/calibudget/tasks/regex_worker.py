"""The program that searches for regular expressions: [pattern, text] in, [found, or null] out.

It stands alone (nothing of calibudget is imported), and a search that takes too long ends it.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Final

#: Seconds of computing that one search may take, and memory that the process may.
_CPU_LIMIT_S: Final = 5
_MEMORY_LIMIT: Final = 512 * 2**20


def main() -> None:
    """Answer questions until the input ends."""
    try:
        import resource
    except ImportError:  # not on this platform: the asker's own limit holds
        limit = None
    else:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
        limit = signal.ITIMER_VIRTUAL  # ends the process: no handler is set
    print('"ready"', flush=True)
    for line in sys.stdin:
        pattern, text = json.loads(line)
        if limit is not None:
            signal.setitimer(limit, _CPU_LIMIT_S)
        found = re.search(pattern, text)
        if limit is not None:
            signal.setitimer(limit, 0)
        print(json.dumps([found and (found[1] if found.re.groups else found[0])]), flush=True)


if __name__ == "__main__":
    main()

"""The program that compares mathematical answers: [gold, predicted] a line in, true or false a line out.

It stands alone (nothing of calibudget is imported), and a comparison that takes too long ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final

#: Seconds of computing that one comparison may take, and memory that the process may.
_CPU_LIMIT_S: Final = 10
_MEMORY_LIMIT: Final = 4 * 2**30


def judge(gold: str, predicted: str) -> bool:
    """Whether math-verify parses both answers whole, without falling back on a part of them, and finds them equal."""
    from math_verify import LatexExtractionConfig, parse, verify

    whole = [LatexExtractionConfig()]
    sides = [
        parse(f"${answer}$", extraction_config=whole, fallback_mode="no_fallback", parsing_timeout=None)
        for answer in (gold.replace("$", " "), predicted.replace("$", " "))
    ]
    if not all(sides):
        return False
    return bool(verify(sides[0], sides[1], timeout_seconds=None))


def main() -> None:
    """Answer questions until the input ends."""
    limit = _limit()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not be read as a verdict
    judge("1", "1")
    answers.write(b'"ready"\n')
    for line in sys.stdin.buffer:
        if limit is not None:
            signal.setitimer(limit, _CPU_LIMIT_S)
        try:
            gold, predicted = json.loads(line)
            verdict = judge(gold, predicted)
        except Exception:  # an answer that breaks the parser is unparsable
            verdict = False
        if limit is not None:
            signal.setitimer(limit, 0)
        answers.write(b"true\n" if verdict else b"false\n")


def _limit() -> int | None:
    """Bound the memory; the timer that bounds a comparison, None where the system has neither."""
    try:
        import resource
    except ImportError:
        return None
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    return signal.ITIMER_VIRTUAL  # ends the process: no handler is set


if __name__ == "__main__":
    main()

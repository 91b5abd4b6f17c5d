"""The program that `verifier` runs: one JSON array [gold, predicted] a line in, "true" or "false" a line out.

It stands alone (nothing of calibudget is imported) and may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import sys


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
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not be read as a verdict
    judge("1", "1")
    answers.write(b"ready\n")
    for line in sys.stdin.buffer:
        try:
            gold, predicted = json.loads(line)
            verdict = judge(gold, predicted)
        except Exception:  # an answer that breaks the parser is unparsable
            verdict = False
        answers.write(b"true\n" if verdict else b"false\n")


if __name__ == "__main__":
    main()

"""The program of a process for questions that can take for ever: a JSON value a line in, one a line out.

Its argument says which: `math` compares two answers, `regex` searches for a pattern, `template` renders a chat template
(it comes with a model and may loop or write without end). It stands alone (nothing of calibudget is imported); time
and memory of each question are bounded, and one that exceeds them ends it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any


def compare(question: list[str]) -> bool:
    """Whether math-verify parses both answers whole, without falling back on a part of them, and finds them equal."""
    from math_verify import LatexExtractionConfig, parse, verify

    whole = [LatexExtractionConfig()]
    try:
        gold, predicted = (
            parse(f"${answer}$", extraction_config=whole, fallback_mode="no_fallback", parsing_timeout=None)
            for answer in (text.replace("$", " ") for text in question)
        )
        return bool(gold and predicted and verify(gold, predicted, timeout_seconds=None))
    except Exception:  # an answer that breaks the parser is unparsable
        return False


def search(question: list[str]) -> list[str | None]:
    """What a pattern finds in a text: its first group if it has one."""
    pattern, text = question
    found = re.search(pattern, text)
    return [found and (found[1] if found.re.groups else found[0])]


def render(question: dict[str, Any]) -> dict[str, object]:
    """The result of transformers' rendering of these arguments, or its error."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        return {"made": render_jinja_template(**question)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000]}


#: By kind: what answers, a first question that loads its libraries, and the seconds of computing and the memory, beyond
#: what the libraries take, that one question may take.
KINDS = {
    "math": (compare, ["1", "1"], 10, 4 * 2**30),
    "regex": (search, ["", ""], 5, 512 * 2**20),
    "template": (render, {"conversations": [[{"role": "user", "content": ""}]], "chat_template": ""}, 5, 384 * 2**20),
}


def main(kind: str) -> None:
    """Answer questions until the input ends."""
    answer, first, seconds, memory = KINDS[kind]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not be read as an answer
    answer(first)  # type: ignore[operator]
    is_bounded = _bound(memory)
    print('"ready"', file=answers, flush=True)
    for line in sys.stdin:
        if is_bounded:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # ends the process: no handler is set
        told = json.dumps(answer(json.loads(line)))  # type: ignore[operator]
        if is_bounded:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(told, file=answers, flush=True)


def _bound(memory: int) -> bool:
    """Bound the memory; False where the system has neither this nor a timer, and the asker's own limit holds."""
    try:
        import resource
    except ImportError:
        return False
    pages = Path("/proc/self/statm")  # where there is none, a GiB is taken to hold the libraries
    size = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 2**30
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    return True


if __name__ == "__main__":
    main(sys.argv[1])

"""The program that renders chat templates: the arguments of transformers' rendering in, its result or an error out.

A template comes with a model and may loop or write without end: time and memory of each rendering are bounded, and one
that exceeds them ends this process. Nothing of calibudget is imported.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

#: Seconds of computing, and memory beyond what the libraries take, that one rendering may take.
_CPU_LIMIT_S: Final = 5
_MEMORY: Final = 384 * 2**20


def main() -> None:
    """Render until the input ends."""
    from transformers.utils.chat_template_utils import render_jinja_template

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not be read as an answer
    render_jinja_template(conversations=[[{"role": "user", "content": ""}]], chat_template="")
    timer = _limit()
    print('"ready"', file=answers, flush=True)
    for line in sys.stdin:
        if timer is not None:
            signal.setitimer(timer, _CPU_LIMIT_S)
        try:
            answer: object = {"made": render_jinja_template(**json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        if timer is not None:
            signal.setitimer(timer, 0)
        print(json.dumps(answer), file=answers, flush=True)


def _limit() -> int | None:
    """Bound the memory; the timer that bounds a rendering, None where the system has neither."""
    try:
        import resource
    except ImportError:
        return None
    pages = Path("/proc/self/statm")  # where there is none, a GiB is taken to hold the libraries
    size = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 2**30
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
    return signal.ITIMER_VIRTUAL  # ends the process: no handler is set


if __name__ == "__main__":
    main()

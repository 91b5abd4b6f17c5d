"""math-verify in processes of its own, so that a time limit can be kept by killing one.

SymPy can run for minutes in code that no alarm interrupts. A worker is started for a question that finds none idle, so
there are as many as threads that ask at once, and ends with its parent, whose end closes its input.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

from calibudget.errors import CalibudgetError, DependencyError
from calibudget.tasks.text import holds_prose

#: Seconds that one comparison may take before it counts as wrong; starting the worker isn't counted.
TIME_LIMIT_S: Final = 10.0
_START_LIMIT_S: Final = 120.0
#: Longest answer, in characters, that is worth parsing.
_MAX_LENGTH: Final = 2000


class _Worker:
    """One running `math_worker`; its lines are read by a thread, so that waiting for one can end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own file under our own interpreter
            [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._pump, daemon=True).start()
        if self._next_line(_START_LIMIT_S) != b"ready\n":
            self.stop()
            raise CalibudgetError("the math-verify worker doesn't start; try `python -c 'import math_verify'`")

    def ask(self, gold: str, predicted: str, limit_s: float) -> bool | None:
        """The verdict, or None if the worker died or the time limit passed: then it has to be stopped."""
        try:
            _pipe(self._process.stdin).write(json.dumps([gold, predicted]).encode() + b"\n")
            _pipe(self._process.stdin).flush()
        except OSError:
            return None
        return {b"true\n": True, b"false\n": False}.get(self._next_line(limit_s))

    def stop(self) -> None:
        """Kill the process, wait for its end and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                _pipe(pipe).close()
            except OSError:
                continue

    def _pump(self) -> None:
        try:
            for line in _pipe(self._process.stdout):
                self._lines.put(line)
        except (OSError, ValueError):  # closed while reading
            pass
        self._lines.put(b"")

    def _next_line(self, limit_s: float) -> bytes:
        try:
            return self._lines.get(timeout=limit_s)
        except queue.Empty:
            return b""


#: Workers that wait for a question.
_idle: list[_Worker] = []


@lru_cache(maxsize=4096)
def judged_equal(gold: str, predicted: str) -> bool:
    """Whether math-verify parses both answers whole and finds them equal, gold first, within the time limit.

    Prose is never given to it: it reads "listen" and "silent" as the same product of letters.

    Raises:
        DependencyError: math-verify isn't installed.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise DependencyError("comparing mathematical answers needs math-verify: pip install 'calibudget[math]'")
    if any(len(answer) > _MAX_LENGTH or holds_prose(answer) for answer in (gold, predicted)):
        return False
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    verdict = None
    try:
        verdict = worker.ask(gold, predicted, TIME_LIMIT_S)
    finally:
        if verdict is None:
            worker.stop()
        else:
            _idle.append(worker)
    return bool(verdict)


@atexit.register
def _stop_all() -> None:
    while _idle:
        _idle.pop().stop()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:  # never: both are asked for
        raise CalibudgetError("the math-verify worker has no pipe")
    return pipe

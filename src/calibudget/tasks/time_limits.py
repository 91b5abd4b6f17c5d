"""Questions whose answer can take for ever, put to processes of their own: a time limit is kept by killing one.

SymPy and a regular expression can run for hours in code that no alarm interrupts. A process is started for a question
that finds none idle, so there are as many as threads that ask at once, and ends with its parent, whose end closes its
input.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from calibudget.errors import CalibudgetError

_PROGRAM: Final = Path(__file__).with_name("bounded_worker.py")
_START_LIMIT_S: Final = 120.0


class _Process:
    """One running program; its lines are read by a thread, so that waiting for one can end."""

    def __init__(self, kind: str) -> None:
        self._process: Any = subprocess.Popen(  # noqa: S603 - our own file under our own interpreter
            [sys.executable, "-P", str(_PROGRAM), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._pump, daemon=True).start()
        if self._next_line(_START_LIMIT_S) != b'"ready"\n':
            self.stop()
            raise CalibudgetError(f"{_PROGRAM.name} {kind} doesn't start; run it by itself to see why")

    def ask(self, question: object, limit_s: float) -> object:
        """The answer, or None if the process died or the time limit passed: then it has to be stopped."""
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        line = self._next_line(limit_s)
        return json.loads(line) if line.endswith(b"\n") else None

    def stop(self) -> None:
        """Kill the process, wait for its end and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except OSError:
                continue

    def _pump(self) -> None:
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except (OSError, ValueError):  # closed while reading
            pass
        self._lines.put(b"")

    def _next_line(self, limit_s: float) -> bytes:
        try:
            return self._lines.get(timeout=limit_s)
        except queue.Empty:
            return b""


#: Processes that wait for a question, by their kind.
_idle: dict[str, list[_Process]] = {}


def ask(kind: str, question: object, limit_s: float) -> object:
    """What `tasks/bounded_worker.py` answers under one of its kinds, both sides JSON.

    None if it died or took longer than the limit, in seconds of waiting; the start of a process isn't counted.
    """
    idle = _idle.setdefault(kind, [])
    try:
        process = idle.pop()
    except IndexError:
        process = _Process(kind)
    answer = None
    try:
        answer = process.ask(question, limit_s)
    finally:
        if answer is None:
            process.stop()
        else:
            idle.append(process)
    return answer


@atexit.register
def _stop_all() -> None:
    for idle in _idle.values():
        while idle:
            idle.pop().stop()

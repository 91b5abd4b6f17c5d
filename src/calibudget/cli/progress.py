"""Progress on stderr: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any, Final, Protocol

from calibudget.cli.interrupts import say
from calibudget.cli.options import Command
from calibudget.pipeline.progress import Progress

#: Seconds between lines of a stage that tells how far it is, and until a stage that tells nothing is told again.
SECONDS_BETWEEN_LINES: Final = 10.0
_SECONDS_OF_SILENCE: Final = 30.0


class Begun(Command):
    """A command that may take long: its first word comes before the libraries that it needs are loaded."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        say("starting ...")
        return super().invoke(ctx)


class Told(Progress, Protocol):
    """A progress callback that is told how a stage goes, too, in words that take the place of its rate."""

    def __call__(self, stage: str, done: int, total: int | None, words: str = "") -> None:
        """Take note of a stage's state."""
        ...


@contextmanager
def progress_bar() -> Iterator[Told]:
    """A progress callback for the length of a `with` block."""
    if not sys.stderr.isatty():
        lines, over = Lines(), Event()
        thread = Thread(target=_beat, args=(lines, over), daemon=True)
        thread.start()
        try:
            yield lines
        finally:
            over.set()
            thread.join()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    said, rate = TextColumn("{task.description}"), TextColumn("{task.fields[rate]}")
    columns = (said, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}
        started: dict[str, float] = {}

        def update(stage: str, done: int, total: int | None, words: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, completed=done, rate="")
                started[stage] = time.monotonic()
            elapsed = time.monotonic() - started[stage]
            speed = f"{done / elapsed:,.{0 if done > 10 * elapsed else 1}f}/s" if elapsed > 1 else ""
            bar.update(tasks[stage], completed=done, total=total, rate=words or speed)

        yield update


def _beat(lines: Lines, over: Event) -> None:
    while not over.wait(_SECONDS_OF_SILENCE / 3):
        lines.again(time.monotonic())


class Lines:
    """One line when a stage ends, one every ten seconds while it lasts, and one where something whole begins.

    A stage that tells nothing for half a minute is told again, so that a log doesn't stop while work goes on.
    """

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._stage, self._state, self._is_over = "", "", False
        self._spoke = self._moved = time.monotonic()
        self._lock = Lock()

    def __call__(self, stage: str, done: int, total: int | None, words: str = "") -> None:
        """Take note of a stage's state, as `Told` says."""
        now = time.monotonic()
        with self._lock:
            if total == 1 and not done:
                self.say(f"{stage} ...", now)
            started = self._started.setdefault(stage, now)
            finished = total is not None and done >= total
            self._stage, self._is_over, self._moved = stage, finished, now
            self._state = stage if total == 1 else f"{stage}: {done:,}{f' of {total:,}' if total else ''}"
            if not finished and now - self._said.setdefault(stage, now) < SECONDS_BETWEEN_LINES:
                return
            self._said[stage] = now
            elapsed = now - started
            rate = f", {done / elapsed:,.1f}/s" if elapsed > 0.5 and total != 1 else ""
            left = f", {elapsed / done * (total - done):,.0f} s left" if total and done and not finished else ""
            took = f": {elapsed:,.1f} s" if total == 1 else ""
            self.say(f"{self._state}, {words}" if words else f"{self._state}{rate}{left}{took}", now)

    def again(self, now: float) -> None:
        """Say where the work stands if nothing was said for half a minute; `now` is the clock's, in seconds."""
        with self._lock:
            if self._stage and now - self._spoke >= _SECONDS_OF_SILENCE:
                since = self._moved if self._is_over else self._started[self._stage]
                state = f"at work since {self._stage} ended" if self._is_over else self._state
                self.say(f"{state}, {now - since:,.0f} s so far", now)

    def say(self, text: str, now: float) -> None:
        """Write a line; `now` is the clock's, in seconds."""
        with suppress(OSError, ValueError):  # where nobody reads stderr any more, the work goes on
            print(text, file=sys.stderr, flush=True)
        self._spoke = now

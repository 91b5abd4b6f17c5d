"""Progress on stderr: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from calibudget.pipeline.progress import Progress

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress callback for the length of a `with` block."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    class Rate(TextColumn):
        def __init__(self) -> None:
            super().__init__("{task.fields[rate]}")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Bar(*columns, console=console) as bar:
        tasks: dict[str, TaskID] = {}
        started: dict[str, float] = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, rate="")
                started[stage] = time.monotonic()
            elapsed = time.monotonic() - started[stage]
            rate = f"{done / elapsed:,.{0 if done > 10 * elapsed else 1}f}/s" if elapsed > 1 else ""
            bar.update(tasks[stage], completed=done, total=total, rate=rate)

        yield update


class _Lines:
    """One line when a stage ends, one every ten seconds while it lasts, and one where something whole begins."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if total == 1 and not done:
            print(f"{stage} ...", file=sys.stderr, flush=True)
        started = self._started.setdefault(stage, now)
        finished = total is not None and done >= total
        if not finished and now - self._said.setdefault(stage, now) < _SECONDS_BETWEEN_LINES:
            return
        self._said[stage] = now
        elapsed = now - started
        rate = f", {done / elapsed:,.1f}/s" if elapsed > 0.5 else ""
        left = f", {elapsed / done * (total - done):,.0f} s left" if total and done and not finished else ""
        print(f"{stage}: {done:,}{f' of {total:,}' if total else ''}{rate}{left}", file=sys.stderr, flush=True)

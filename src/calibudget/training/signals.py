"""Ctrl-C and SIGTERM, put off to the end of an optimizer step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether someone asked to stop."""

    def __init__(self) -> None:
        self.is_made = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """While the block runs, the first signal only sets the request, and a second one interrupts at once.

    Outside of the main thread, where signals can't be handled, nothing is changed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if request.is_made:
            raise KeyboardInterrupt
        request.is_made = True

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

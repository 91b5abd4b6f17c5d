"""Repeated exposure: a candidate may be drawn again once all candidates of its source were, and says so in its id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from calibudget.errors import InputError

#: What the second and later exposures of a candidate append to its id: "#r2", "#r3", ...
REPEAT_MARK: Final = re.compile(r"#r([1-9][0-9]*)$")


def exposures(label: str, queue: Sequence[str], max_repeats: int) -> Sequence[str]:
    """The queue of a source whose candidates may each be drawn up to `max_repeats` times.

    First all candidates in key order, then all of them once more, in the same order and marked, and so on: nothing
    is seen a second time before everything was seen once, and a larger quota keeps a smaller one's picks.

    Args:
        label: the source, for messages.
        queue: ids of its candidates in key order.
        max_repeats: at least 1; 1 gives the queue itself.

    Raises:
        InputError: an id of the queue ends like a marked one.
    """
    if max_repeats == 1:
        return queue
    for record_id in queue:
        if REPEAT_MARK.search(record_id):
            raise InputError(f"{label}: the id {record_id!r} looks like a repeat's; drop `max_repeats` or `id_field`")
    return [marked(record_id, number) for number in range(1, max_repeats + 1) for record_id in queue]


def marked(record_id: str, number: int) -> str:
    """The id of a candidate's n-th exposure; the first bears no mark."""
    return record_id if number == 1 else f"{record_id}#r{number}"


def unmarked(exposure: str) -> tuple[str, int]:
    """The candidate's own id, and which of its exposures this is."""
    match = REPEAT_MARK.search(exposure)
    return (exposure, 1) if match is None else (exposure[: match.start()], int(match[1]))

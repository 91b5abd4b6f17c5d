"""`training.jsonl`: one line an optimizer step, and no clock in it, so that equal runs write equal bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final, Self

from calibudget.errors import ArtefactError
from calibudget.store import canonical_json, loads_object

LOG_NAME: Final = "training.jsonl"


class TrainingLog:
    """The log of a run, open for appending; lines are seen by readers at once and on the disk after `sync`.

    Attributes:
        last_loss: loss of the last step that it held at opening, NaN if none.
    """

    def __init__(self, handle: BinaryIO, last_loss: float) -> None:
        self._handle = handle
        self.last_loss = last_loss

    @classmethod
    def open(cls, path: Path, *, steps: int) -> Self:
        """Open a log that holds the first `steps` steps; what it holds beyond them is cut off.

        Raises:
            ArtefactError: it holds fewer, or can't be read or written.
        """
        try:
            handle = path.open("r+b" if path.exists() else "x+b")
        except OSError as error:
            raise ArtefactError(f"{path}: can't be opened: {error.strerror or error}") from error
        last_loss = math.nan
        try:
            for step in range(1, steps + 1):
                last_loss = _loss(handle.readline(), step, path)
            handle.truncate()
        except BaseException:
            handle.close()
            raise
        return cls(handle, last_loss)

    def write(self, entry: Mapping[str, object]) -> None:
        """Add one step's line.

        Raises:
            ArtefactError: the disk is full or can't be written.
        """
        try:
            self._handle.write(canonical_json(dict(entry)) + b"\n")
            self._handle.flush()
        except OSError as error:
            raise ArtefactError(f"{self._handle.name}: can't be written: {error.strerror or error}") from error

    def sync(self) -> None:
        """Bring everything written to the disk."""
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _loss(line: bytes, step: int, path: Path) -> float:
    entry = loads_object(line, f"{path.name}: line {step}") if line.endswith(b"\n") else {}
    loss = entry.get("loss")
    if entry.get("step") != step or isinstance(loss, bool) or not isinstance(loss, int | float):
        raise ArtefactError(f"{path}: line {step} isn't that of step {step}; the log was changed")
    return float(loss)

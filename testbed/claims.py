"""Who works on which cell: files that exactly one process can make, in a folder that lives as long as the work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: How often a cell is tried before it is left alone.
_ATTEMPTS: Final = 2


class Claims:
    """The claims of all processes, seen by each of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, name: str) -> bool:
        """Claim a cell; False if another process has it, or it failed for good."""
        if (self._folder / f"{_plain(name)}.failed-{_ATTEMPTS}").exists():
            return False
        try:
            os.close(os.open(self._folder / _plain(name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def fail(self, name: str, *, for_good: bool) -> None:
        """Note that a claimed cell failed; another attempt may follow unless it failed for good."""
        number = _ATTEMPTS
        if not for_good:
            number = next(n for n in range(1, _ATTEMPTS + 1) if not self._failure(name, n).exists())
        self._failure(name, number).touch()
        if number < _ATTEMPTS:
            (self._folder / _plain(name)).unlink()

    def _failure(self, name: str, number: int) -> Path:
        return self._folder / f"{_plain(name)}.failed-{number}"


def _plain(name: str) -> str:
    return name.replace("/", "+").replace(".", "_")

"""One writer a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from calibudget.errors import ArtefactError

#: The file that carries the lock; it stays behind and means nothing by existing.
LOCK_NAME: Final = ".calibudget.lock"


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold an existing directory for writing; the operating system frees it when the process dies.

    Raises:
        ArtefactError: another process, or another block of this one, holds it; or it can't be locked at all.
    """
    lock = FileLock(directory / LOCK_NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ArtefactError(f"{directory}: in use by another run; wait for it or choose another directory") from error
    except (OSError, NotImplementedError) as error:
        raise ArtefactError(f"{directory}: can't be locked for writing: {error}") from error
    try:
        yield
    finally:
        lock.release()

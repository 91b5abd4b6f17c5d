"""One writer a directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def output_directory(directory: Path) -> Iterator[None]:
    """Hold a directory for writing, made where it isn't there; if no file is made in it, all is as it was before.

    Entered before work begins, it tells a wrong directory before time is spent on it.

    Raises:
        ArtefactError: it can't be made or written, or another process is writing to it.
    """
    try:
        made = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        before = _names(directory)
    except OSError as error:
        raise ArtefactError(f"{directory}: can't be made: {error.strerror or error}; name another directory") from error
    with directory_lock(directory):
        try:
            yield
        finally:
            with suppress(OSError):  # a system that removes no open file keeps the lock
                if _names(directory) - before == {LOCK_NAME}:
                    (directory / LOCK_NAME).unlink()
                    for path in made:
                        path.rmdir()


def check_writable(directory: Path) -> None:
    """Refuse a directory that couldn't be written now; nothing is left there.

    Raises:
        ArtefactError: see `output_directory`.
    """
    with output_directory(directory):
        pass


@contextmanager
def work_directory(directory: Path) -> Iterator[None]:
    """An output directory of work that is begun: kept if the block fails, gone with all that it holds if it doesn't."""
    with output_directory(directory):
        yield
    shutil.rmtree(directory, ignore_errors=True)


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}

"""Files that are either whole or absent, whatever happens while they are written.

A file is written beside its target under a temporary name, flushed to the disk and renamed over the target; the
directory is flushed too, so that the rename survives a power cut. A killed process can leave its temporary file
behind, never a torn target: `clean_stale` removes such leavings.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from calibudget.errors import ArtefactError

_PREFIX: Final = ".calibudget-"
_SUFFIX: Final = ".tmp"

#: Failures of the disk itself, as opposed to an OSError that the writing code met elsewhere.
_DISK_ERRORS: Final = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS") if hasattr(errno, name)
)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace or create one file with the given bytes, wholly or not at all.

    Raises:
        ArtefactError: the disk is full or can't be written; the old file, if any, is as it was.
    """
    with atomic_file(path) as handle:
        handle.write(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary handle whose bytes become the file when the block ends, and vanish when it raises.

    Raises:
        ArtefactError: the disk is full or can't be written; the old file, if any, is as it was.
    """
    temporary = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    try:
        handle = temporary.open("xb")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        try:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        finally:
            handle.close()
        _replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            raise _unwritable(path, error) from error
        raise
    sync_directory(path.parent)


def clean_stale(directory: Path) -> list[str]:
    """Remove temporary files that a killed writer left in a directory, and name them.

    Call it only while holding the directory's lock: a live writer's temporary files look the same.
    """
    stale = sorted(path for path in directory.glob(f"{_PREFIX}*{_SUFFIX}") if path.is_file() or path.is_symlink())
    for path in stale:
        path.unlink(missing_ok=True)
    return [path.name for path in stale]


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to the disk, where the system can do that (Windows can't)."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ArtefactError:
    reason = error.strerror or str(error)
    return ArtefactError(f"{path}: can't be written: {reason}; nothing was changed, make room or choose another place")

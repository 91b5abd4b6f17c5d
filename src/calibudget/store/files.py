"""Files that are either whole or absent, whatever happens while they are written.

A file is written beside its target under a temporary name, flushed to the disk and renamed over the target; the
directory is flushed too, so that the rename survives a power cut. A killed process can leave its temporary file
behind, never a torn target: `clean_stale` removes such leavings.

One writer a directory; and paths and names that come from outside stay where they belong, or are refused.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Final

from filelock import FileLock, Timeout

from calibudget.errors import ArtefactError, InputError

_STALE: Final = re.compile(r"\.calibudget-[0-9a-f]{16}\.tmp")
#: Failures that room would mend.
_FULL: Final = frozenset(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))
#: Failures of the disk itself, as opposed to an OSError that the writing code met elsewhere.
_DISK_ERRORS: Final = _FULL | {errno.EIO, errno.EROFS}


def write_atomic(path: Path, data: bytes) -> None:
    """Replace or create one file with the given bytes, wholly or not at all."""
    with atomic_file(path) as handle:
        handle.write(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary handle whose bytes become the file when the block ends, and vanish when it raises.

    Raises:
        ArtefactError: the disk is full or can't be written; the old file, if any, is as it was.
    """
    if not path.name:
        raise ArtefactError(f"{path}: names a folder; name the file to write")
    temporary = path.with_name(stale_name())
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
    flush(path.parent)


def move_into_place(whole: Path, path: Path) -> None:
    """Give a whole file its place in one step, a file that is there being replaced.

    It is made in a work directory that its writer holds, so that no other's `clean_stale` meets it half-written, where
    several writers share the folder it belongs in.
    """
    _replace(whole, path)
    flush(path.parent)


def is_stale(name: str) -> bool:
    """Whether a file or folder of this name is what a killed writer left; it means nothing to any reader."""
    return _STALE.fullmatch(name) is not None


def clean_stale(directory: Path) -> list[str]:
    """Remove what killed writers left in a directory, files and folders, and name it.

    Call it only while holding the directory's lock: what a live writer is making looks the same.
    """
    stale = sorted(path for path in directory.iterdir() if is_stale(path.name))
    for path in stale:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return [path.name for path in stale]


def remove_directory(directory: Path) -> None:
    """Remove a directory in one step for every reader: it loses its name first, then what it holds."""
    leaving = directory.with_name(stale_name())
    directory.replace(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def stale_name() -> str:
    """A name for what isn't whole yet, or no longer."""
    return f".calibudget-{secrets.token_hex(8)}.tmp"


def held_names(directory: Path) -> list[str]:
    """What a directory holds, by name, but for the lock and what killed writers left; nothing where there is none."""
    names = (path.name for path in directory.iterdir()) if directory.exists() else ()
    return sorted(name for name in names if name != LOCK_NAME and not is_stale(name))


def flush(path: Path) -> None:
    """Flush a file, or a directory's entries where the system can do that (Windows can't), to the disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
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
    way = "make room or choose" if error.errno in _FULL else "choose"
    return ArtefactError(f"{path}: can't be written: {error.strerror}; nothing was changed, {way} another place")


#: The file that carries the lock; it stays behind and means nothing by existing.
LOCK_NAME: Final = ".calibudget.lock"


def is_no_file(path: Path) -> bool:
    """Whether there is something of this name that is no regular file; a link is none, wherever it leads."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def is_dangling(path: Path) -> bool:
    """Whether this is a link to what isn't there."""
    return path.is_symlink() and not path.exists()


@contextmanager
def directory_lock(directory: Path, *, patience: float = 0) -> Iterator[None]:
    """Hold an existing directory for writing; the operating system frees it when the process dies.

    Another that holds it is waited for, `patience` seconds.

    Raises:
        ArtefactError: another process, or another block of this one, holds it; or it can't be locked at all.
    """
    path = directory / LOCK_NAME
    if is_no_file(path):
        raise ArtefactError(f"{path}: is no regular file, so it can't carry the lock; remove it")
    lock = FileLock(path, timeout=patience)
    try:
        lock.acquire()
    except Timeout as error:
        raise ArtefactError(f"{directory}: in use by another run; wait for it or choose another directory") from error
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArtefactError(f"{directory}: can't be locked for writing: {reason}; name another directory") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def output_directory(directory: Path, *, clean: bool = True) -> Iterator[None]:
    """Hold a directory for writing, made where it isn't there; if no file is made in it, all is as it was before.

    What killed writers left in it is removed, unless `clean` is off.

    Entered before work begins, it tells a wrong directory before time is spent on it.

    Raises:
        ArtefactError: it can't be made or written, or another process is writing to it.
    """
    try:
        made = make_directory(directory)
        before = _names(directory)
    except OSError as error:
        reason = "it is a link to nothing" if is_dangling(directory) else error.strerror or error
        raise ArtefactError(f"{directory}: can't be made: {reason}; name another directory") from error
    with directory_lock(directory):
        if clean:
            clean_stale(directory)
        try:
            yield
        finally:
            with suppress(OSError):  # a system that removes no open file keeps the lock
                if _names(directory) - before == {LOCK_NAME}:
                    (directory / LOCK_NAME).unlink()
                    for path in made:
                        path.rmdir()


def make_directory(directory: Path) -> list[Path]:
    """Make a directory and those above it, as far as they aren't there, so that their names survive a power cut.

    Returns:
        Those that were made, the innermost first.
    """
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in made:
        flush(path.parent)
    return made


def check_writable(directory: Path) -> None:
    """Refuse a directory that couldn't be written now; it is left as it is."""
    with output_directory(directory, clean=False):
        pass


def refuse_links(path: Path) -> None:
    """Refuse a folder of this package's own that is a link or holds one: what is written there would land elsewhere.

    Raises:
        ArtefactError: it does; the link is named.
    """
    for one in chain((path,), path.rglob("*")):
        if one.is_symlink():
            raise ArtefactError(f"{one}: is a link, so what belongs there would be written elsewhere; remove it")


@contextmanager
def work_directory(directory: Path) -> Iterator[Path]:
    """An output directory of work that is begun: kept if the block fails, gone with all that it holds if it doesn't.

    What it gives is where the work's journal belongs.

    Raises:
        ArtefactError: it holds files, but neither a lock nor a journal, so they aren't this package's own.
    """
    refuse_links(directory)
    journal, held = directory / "journal", set[str]()
    with suppress(OSError):  # it isn't there, or another command removes it just now
        held = _names(directory)
    if held and held.isdisjoint({LOCK_NAME, journal.name}):
        raise ArtefactError(f"{directory}: holds other files, and is where unfinished work is kept; move it away")
    with output_directory(directory):
        yield journal
    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):  # what is finished afterwards must not outlive this in a power cut
        flush(directory.parent)


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def confined(root: Path, relative: str, *, follow_symlinks: bool = False) -> Path:
    """The path of `relative` below `root`, as a recipe, a manifest or an archive names it, if it names nothing outside.

    With `follow_symlinks` a link below `root` may lead out of it (as in a hub cache, whose files are links to another
    folder); the name itself is confined either way.

    Raises:
        InputError: an empty or absolute path (of POSIX or Windows), a ".." part, a NUL, or a link that leads out or
            nowhere.
    """
    windows = PureWindowsPath(relative)
    if not relative or "\0" in relative or PurePosixPath(relative).is_absolute() or windows.anchor:
        raise InputError(f"the path {relative!r} must be relative and stay below {root}")
    if ".." in windows.parts:
        raise InputError(f"the path {relative!r} must not climb with '..'; it has to stay below {root}")
    path = root / relative
    if not follow_symlinks and not resolved(path).is_relative_to(resolved(root)):
        raise InputError(f"the path {relative!r} leads out of {root} through a symbolic link")
    return path


def resolved(path: Path) -> Path:
    """The path without links and dots.

    Raises:
        InputError: its links can't be followed.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises the latter for links in a circle
        raise InputError(f"{path}: its symbolic links lead round in a circle, or can't be followed") from error


def expanded(path: str) -> str:
    """The path with the home folder that a leading `~` or `~user` stands for; any other as it is.

    Raises:
        InputError: there is no such home.
    """
    if not path.startswith("~"):
        return path
    try:
        return str(Path(path).expanduser())
    except RuntimeError as error:
        raise InputError(
            f"{path!r} begins with a home folder that isn't known; write it out, or begin with './' for a name with '~'"
        ) from error

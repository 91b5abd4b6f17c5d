"""Files of a cache: each is called by all that it follows from and ends with the digest of its bytes (docs/formats.md).

So none is ever out of date, and one that isn't what was written is noticed when it is opened.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeVar

from pydantic import TypeAdapter

from calibudget.hardware import own_version
from calibudget.store.canonical import canonical_json
from calibudget.store.checksums import code_sha256

Value = TypeVar("Value")
#: Bytes below which reading again costs less than looking after what it gave.
SMALL: Final = 1_048_576
_DIGEST_BYTES: Final = 32
#: Seconds after which nobody writes a temporary file any more.
_ABANDONED: Final = 86_400
#: What is kept, which is how its files are called.
_KINDS: Final = ("identities", "findings", "measurements")


class NewFile:
    """A file to be written, and the digest of what was."""

    closed = False

    def __init__(self, handle: BinaryIO) -> None:
        self.handle = handle
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write at the end."""
        self.sha256.update(data)
        return self.handle.write(data)

    def flush(self) -> None:
        """Hand what was written to the system."""
        self.handle.flush()


def cache_folder() -> Path | None:
    """Where things are kept unless the recipe names another folder: below `XDG_CACHE_HOME`, or `~/.cache`.

    None for a user without a home, who keeps nothing.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "calibudget" / "identities"


def kept_path(folder: Path, kind: str, *follows_from: object) -> Path:
    """Where a cache keeps what follows from all that, and from the code of this version."""
    name = hashlib.sha256(canonical_json([*follows_from, _made_by()])).hexdigest()
    return folder / f"{name}.{kind}"


def make_ready(folder: Path) -> None:
    """Make a cache's folder if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)


@contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Write a file that is whole at the end of the block, or isn't there; its handle is left open.

    The disk isn't told to hurry: a file that a power cut tears is noticed by its digest.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    handle = temporary.open("x+b")
    try:
        out = NewFile(handle)
        yield out
        handle.write(out.sha256.digest())
        handle.flush()
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            handle.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def open_whole(path: Path) -> tuple[BinaryIO, int] | None:
    """A file, open, and how many bytes were written before its digest; None where it isn't what `new_file` wrote."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            return None
        handle = path.open("rb")
    except OSError:
        return None
    with suppress(OSError):
        size = os.fstat(handle.fileno()).st_size - _DIGEST_BYTES
        if size >= 0 and _sha256(handle, size) == handle.read():
            return handle, size
    handle.close()
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Generic[Value]):
    """What a cache's file of JSON holds, and its own name, by which a copy of another is told."""

    schema: str
    name: str
    found: Value


def kept_or_made(
    path: Path, schema: str, form: TypeAdapter[Kept[Value]], make: Callable[[], Value]
) -> tuple[Value, bool]:
    """What a cache keeps at a path, or else what is made now, which is then kept; and whether it was kept.

    A cache that can't be written costs time, not the run.
    """
    kept = _read_kept(path, form)
    if kept is not None and (kept.schema, kept.name) == (schema, path.name):
        return kept.found, True
    found = make()
    with suppress(OSError):
        make_ready(path.parent)
        with new_file(path) as out:
            out.write(canonical_json(form.dump_python(Kept(schema=schema, name=path.name, found=found))))
        out.handle.close()
    return found, False


def _read_kept(path: Path, form: TypeAdapter[Kept[Value]]) -> Kept[Value] | None:
    whole = open_whole(path)
    if whole is None:
        return None
    handle, size = whole
    with handle, suppress(OSError, MemoryError, ValueError):
        handle.seek(0)
        return form.validate_json(handle.read(size), strict=True)
    return None


def _sha256(handle: BinaryIO, size: int) -> bytes:
    digest = hashlib.sha256()
    while size and (block := handle.read(min(size, 1_048_576))):
        digest.update(block)
        size -= len(block)
    return digest.digest()


@cache
def _sweep(folder: Path) -> None:
    """Remove what writers that were killed left in a cache; once a process is often enough."""
    for kind in _KINDS:
        for path in folder.glob(f"*.{kind}.????????????????.tmp"):
            with suppress(OSError):
                if path.lstat().st_mtime < time.time() - _ABANDONED:
                    path.unlink()


@cache
def _made_by() -> list[str]:
    """The code that reads, names and compares rows, and what it stands on."""
    libraries = [f"{name} {version(name)}" for name in ("numpy", "orjson", "pyarrow", "rfc8785")]
    return [own_version(), *libraries, sys.version, unicodedata.unidata_version, code_sha256()]

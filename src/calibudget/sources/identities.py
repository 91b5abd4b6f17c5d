"""Files of identities: what a pass over one input finds, written once and read by whoever needs it (docs/formats.md).

A file is an Arrow stream of `naming.identity_schema`, then one line of canonical JSON that says what was read, then
the SHA-256 of all that. A cache keeps such files under a name made of everything that they follow from: the input's
bytes, what the recipe says of reading them, and the code that does it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from pydantic import TypeAdapter, ValidationError

from calibudget.errors import DataError
from calibudget.sources.files import wanted_values
from calibudget.sources.inputs import Input
from calibudget.sources.making import answer_labels
from calibudget.sources.naming import Tally, identity_schema, name_rows
from calibudget.sources.scratch import writing
from calibudget.sources.spec import SourceSpec
from calibudget.store import SourceFile, canonical_json

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA: Final = "calibudget.identities/1"
_DIGEST_BYTES: Final = 32
#: The longest line that a file's last part may be.
_SUMMARY_BYTES: Final = 1_048_576
#: Bytes below which reading an input again costs less than looking after what it gave.
SMALL: Final = 1_048_576
#: Seconds after which nobody writes a temporary file any more.
_ABANDONED: Final = 86_400
#: Fields of a source's description that change no identity.
_ELSEWHERE: Final = ("label", "path", "hub", "subset", "split", "revision", "streaming", "duplicates")
#: Packages of ours whose code decides what a row is called.
_CODE: Final = ("calibudget", "calibudget.sources", "calibudget.tasks", "calibudget.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """A file of identities, open, so that it can be read whatever becomes of its name; `close` or `forget` it.

    Attributes:
        path: where it was put.
        handle: the open file.
        tally: what became of the input's rows.
        input: what was read, bound by its bytes.
        is_kept: whether it was put into the cache.
    """

    path: Path
    handle: BinaryIO = field(repr=False)
    tally: Tally
    input: SourceFile
    is_kept: bool = False

    def close(self) -> None:
        """Leave the file to whoever reads it next."""
        self.handle.close()

    def forget(self) -> None:
        """Close the file, and remove it unless it is kept."""
        self.close()
        if not self.is_kept:
            self.path.unlink(missing_ok=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The identities, in the order read."""
        yield from _stream(self.handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """The line after the stream."""

    schema: str
    tally: Tally
    input: SourceFile


def cache_folder() -> Path | None:
    """Where identities are kept unless the recipe names another folder: below `XDG_CACHE_HOME`, or `~/.cache`.

    None for a user without a home, who keeps nothing.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "calibudget" / "identities"


def find_or_make(spec: SourceSpec, given: Input, folder: Path, kept: Path | None) -> Identities:
    """The identities of an input: those that are kept, or new ones.

    Args:
        spec: what the recipe says of its source.
        given: the input.
        folder: where a file goes that isn't to be kept.
        kept: the cache, None to neither look nor keep.

    Raises:
        DataError: the input can't be read, changed meanwhile, or holds a row that can't be used.
    """
    if kept is None or not is_large(given):
        with writing(folder):
            return make_identities(spec, given, folder / f"{secrets.token_hex(16)}.identities")
    bound = given.bound()
    path = kept / f"{_name(spec, bound)}.identities"
    found = read_identities(path, spec)
    if found is not None and found.input == bound:
        return replace(found, is_kept=True)
    if found is not None:
        found.close()
    try:
        kept.mkdir(parents=True, exist_ok=True)
        _sweep(kept)
        return replace(make_identities(spec, given, path, bound), is_kept=True)
    except OSError:  # a cache that can't be written costs time, not the run
        with writing(folder):
            return make_identities(spec, given, folder / path.name, bound)


def is_large(given: Input) -> bool:
    """Whether an input is worth a worker or a place in the cache: its length is known, and isn't small."""
    return given.bytes is not None and given.bytes >= SMALL


def make_identities(spec: SourceSpec, given: Input, path: Path, bound: SourceFile | None = None) -> Identities:
    """Read an input and write its file of identities, which is whole or isn't there.

    The disk isn't told to hurry: a file that a power cut tears is noticed by its digest.

    Raises:
        DataError: as `find_or_make`; also where the input isn't what is `bound`.
    """
    import pyarrow as pa

    tally = Tally()
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    handle = temporary.open("x+b")
    try:
        out = _Summed(handle)
        with pa.ipc.new_stream(pa.PythonFile(out, mode="w"), identity_schema()) as writer:
            for batch in name_rows(spec, given, tally):
                writer.write_batch(batch)
        read = given.bound()
        if bound is not None and read != bound:
            raise DataError(f"source {spec.label!r}: {read.name}: changed while it was read; run again")
        out.write(b"\n" + canonical_json({"schema": _SCHEMA, "tally": asdict(tally), "input": asdict(read)}))
        handle.write(out.sha256.digest())
        handle.flush()
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            handle.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return Identities(path=path, handle=handle, tally=tally, input=read)


def read_identities(path: Path, spec: SourceSpec) -> Identities | None:
    """A file of identities that fits a source; None where there is none or it isn't what was written."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            return None
        handle = path.open("rb")
    except OSError:
        return None
    summary = _checked(handle, spec)
    if summary is None:
        handle.close()
        return None
    return Identities(path=path, handle=handle, tally=summary.tally, input=summary.input)


def _checked(handle: BinaryIO, spec: SourceSpec) -> _Summary | None:
    """What an open file says was read, None where it isn't what `make_identities` writes."""
    import pyarrow as pa

    try:
        size = os.fstat(handle.fileno()).st_size - _DIGEST_BYTES
        if size < 0 or _sha256(handle, size) != handle.read():
            return None
        if not all(_is_sound(batch, spec) for batch in _stream(handle)):
            return None
        handle.seek(max(0, size - _SUMMARY_BYTES))
        return _summaries().validate_json(handle.read(min(size, _SUMMARY_BYTES)).rpartition(b"\n")[2], strict=True)
    except (OSError, MemoryError, pa.ArrowException, ValidationError):
        return None


def _stream(handle: BinaryIO) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    handle.seek(0)
    return iter(pa.ipc.open_stream(pa.PythonFile(handle, mode="r")))


def _is_sound(batch: pa.RecordBatch, spec: SourceSpec) -> bool:
    """Whether a batch holds what a source's rows can be called."""
    if batch.schema != identity_schema():
        return False
    batch.validate(full=True)
    *always, own_ids = (column.null_count for column in batch.columns)
    if any(always) or own_ids != (len(batch) if spec.id_field is None else 0):
        return False
    places, answers = batch["at"].to_numpy(), batch["answer"].to_numpy()
    return bool((places >= 0).all() and (answers >= -1).all() and (answers < len(answer_labels(spec))).all())


@cache
def _summaries() -> TypeAdapter[_Summary]:
    return TypeAdapter(_Summary)


@cache
def _sweep(folder: Path) -> None:
    """Remove what writers that were killed left in a cache; once a process is often enough."""
    for path in folder.glob("*.identities.????????????????.tmp"):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - _ABANDONED:
                path.unlink()


class _Summed:
    """A file to be written, and the digest of what was."""

    closed = False

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._handle.write(data)

    def flush(self) -> None:
        self._handle.flush()


def _sha256(handle: BinaryIO, size: int) -> bytes:
    digest = hashlib.sha256()
    while size and (block := handle.read(min(size, 1_048_576))):
        digest.update(block)
        size -= len(block)
    return digest.digest()


def _name(spec: SourceSpec, bound: SourceFile) -> str:
    """What the identities of an input follow from, digested; a filter by the texts that it compares."""
    said = {name: value for name, value in asdict(spec).items() if name not in _ELSEWHERE}
    said["where"] = {name: sorted(wanted_values(spec.where, name)) for name in spec.where}
    return hashlib.sha256(canonical_json([_SCHEMA, asdict(bound), said, _made_by()])).hexdigest()


@cache
def _made_by() -> list[str]:
    """The code that names rows, and what it stands on."""
    digest = hashlib.sha256()
    for package in _CODE:
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    libraries = [f"{name} {version(name)}" for name in ("calibudget", "orjson", "pyarrow", "rfc8785")]
    return [*libraries, sys.version, unicodedata.unidata_version, digest.hexdigest()]

"""File digests, and the `SHA256SUMS.tsv` that binds a directory's files (paper, appendix "File Binding").

One line a file, no header, sorted by path: path TAB bytes TAB lower-case SHA-256, paths relative with "/".
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError, InputTypeError, refuse_as
from calibudget.messages import shown
from calibudget.records import SourceFile
from calibudget.store.canonical import canonical_json, open_regular, read_bytes, sha256_hex
from calibudget.store.files import LOCK_NAME, confined, is_no_file, is_stale, write_atomic
from calibudget.values import Count, Digest

#: Name of the sums file of a directory.
SUMS_NAME: Final = "SHA256SUMS.tsv"
#: Name of the signature over the bound files, which therefore isn't one of them.
SIGNATURE_NAME: Final = "signature.dsse.json"
#: Name of the page that shows a directory to people: made of the bound files, it proves nothing, and isn't bound.
REPORT_NAME: Final = "report.html"
_UNBOUND: Final = (LOCK_NAME, SIGNATURE_NAME, REPORT_NAME)

_LINE: Final = re.compile(r"([^\t\n]+)\t(0|[1-9][0-9]*)\t([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """What binds a file: its length in bytes and its SHA-256 in lower-case hexadecimal."""

    bytes: Count
    sha256: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that isn't what the evidence says.

    Attributes:
        file: the file it is in, relative to the directory.
        field: where in the file, "" for the file as a whole.
        expected: what the evidence or a re-derivation says, in words.
        found: what is there, in words.
    """

    file: str
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.field}" if self.field else self.file
        return f"{place}: expected {self.expected}, found {self.found}"


@cache
def code_sha256(*but: str, root: Path = Path(__file__).parents[1]) -> str:
    """Digest of this package's own code, but for what lies below these folders or files."""
    names = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in (".py", ".json")}
    kept = sorted(name for name in names if not name.startswith(but) and "__pycache__" not in name)
    return sha256_hex(canonical_json([[name, file_digest(names[name].resolve()).sha256] for name in kept]))


def file_digest(path: Path) -> FileDigest:
    """Length and SHA-256 of a regular file, read once.

    Raises:
        InputTypeError: no `Path`.
        ArtefactError: the path is missing, a symbolic link or no regular file, or one that no file can have.
    """
    if not isinstance(path, Path):
        raise InputTypeError(f"a file is named by a Path, not {type(path).__name__}: {shown(path)}")
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            raise ArtefactError(f"{path}: is {kind}; evidence binds regular files only")
        with open_regular(path) as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            return FileDigest(bytes=handle.tell(), sha256=digest)
    except OSError as error:
        raise ArtefactError(f"{path}: can't be read: {error.strerror or error}") from error
    except ArtefactError:
        raise
    except ValueError as error:  # a null or a lone surrogate in the path
        raise ArtefactError(f"{str(path)!r}: can't be the path of a file: {error}") from error


def source_file(path: Path, name: str) -> SourceFile:
    """What binds a file that is read: its name, its length and its digest; a link is followed."""
    digest = file_digest(path.resolve())
    return SourceFile(name=name, bytes=digest.bytes, sha256=digest.sha256)


def write_sums(directory: Path, names: Iterable[str]) -> None:
    """Bind the named files of a directory in its `SHA256SUMS.tsv`, atomically.

    Raises:
        ArtefactError: a file is missing or no regular file, or a name can't stand in the sums.
        InputError: a name leaves the directory.
    """
    listed = list(names)
    if len(set(listed)) != len(listed):
        raise ArtefactError(f"{SUMS_NAME}: a file is named twice")
    _write(directory, {name: file_digest(confined(directory, name)) for name in listed})


def extend_sums(directory: Path, names: Iterable[str]) -> None:
    """Bind further files of a directory, or new versions of bound ones; what is bound of the others stays as it is.

    Raises:
        ArtefactError: there are no readable sums yet, or as for `write_sums`.
        InputError: a name leaves the directory.
    """
    _write(directory, read_sums(directory) | {name: file_digest(confined(directory, name)) for name in names})


def _write(directory: Path, sums: Mapping[str, FileDigest]) -> None:
    lines = [f"{name}\t{digest.bytes}\t{digest.sha256}" for name, digest in sorted(sums.items())]
    for line in lines:
        if not _LINE.fullmatch(line):
            raise ArtefactError(f"{line!r}: a name with a tab or a line end can't stand in {SUMS_NAME}")
    write_atomic(directory / SUMS_NAME, "".join(f"{line}\n" for line in lines).encode("utf-8"))


def read_sums(directory: Path) -> dict[str, FileDigest]:
    """The digests that a directory's `SHA256SUMS.tsv` lists, by relative path in code-point order.

    Raises:
        ArtefactError: the file is missing, or a line isn't exactly what `write_sums` would write; it is named.
    """
    data = read_bytes(directory / SUMS_NAME)
    with refuse_as(ArtefactError, f"{SUMS_NAME}: not UTF-8", UnicodeDecodeError):
        lines = data.decode("utf-8").split("\n")
    if lines.pop() != "":
        raise ArtefactError(f"{SUMS_NAME}: the last line is cut short")
    sums: dict[str, FileDigest] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ArtefactError(f"{SUMS_NAME}:{number}: isn't path, bytes and SHA-256 parted by tabs: {line!r}")
        sums[match[1]] = FileDigest(bytes=int(match[2]), sha256=match[3])
    if len(sums) != len(lines) or list(sums) != sorted(sums):
        raise ArtefactError(f"{SUMS_NAME}: paths must be sorted and unique")
    return sums


def check_sums(directory: Path, unfinished: Mapping[str, Sequence[str]] | None = None) -> list[Difference]:
    """Everything by which a directory departs from its `SHA256SUMS.tsv`: changed, missing and extra files.

    Symbolic links are differences wherever they lead. What lock, signature and report hold isn't judged here, and
    what killed writers left, which no reader looks at, is ignored.

    Of `unfinished` work, folders and how the names of what it makes begin, nothing is bound yet.
    """
    try:
        sums = read_sums(directory)
    except ArtefactError as error:
        return [Difference(file=SUMS_NAME, field="", expected="a readable list of sums", found=str(error))]
    strange = [name for name in (SUMS_NAME, *_UNBOUND) if is_no_file(directory / name)]
    differences = [Difference(file=name, field="", expected="a regular file", found="none") for name in strange]
    differences += [found for name in sums for found in _compare(directory, name, sums)]
    pending = tuple(start for folder, makes in (unfinished or {}).items() for start in (f"{folder}/", *makes))
    for name in sorted(set(_files(directory)) - {SUMS_NAME, *_UNBOUND} - set(sums)):
        if not is_stale(name.partition("/")[0]) and not name.startswith(pending):
            differences.append(Difference(file=name, field="", expected=f"no file outside {SUMS_NAME}", found="one"))
    return differences


def _compare(directory: Path, name: str, sums: Mapping[str, FileDigest]) -> list[Difference]:
    expected = sums[name]
    try:
        found = file_digest(confined(directory, name))
    except ValueError as error:  # ArtefactError, or InputError from a path that leaves the directory
        return [Difference(file=name, field="", expected="the file that was bound", found=str(error))]
    if found == expected:
        return []
    if found.bytes != expected.bytes:
        return [Difference(file=name, field="bytes", expected=str(expected.bytes), found=str(found.bytes))]
    return [Difference(file=name, field="sha256", expected=expected.sha256, found=found.sha256)]


def _files(directory: Path) -> Iterable[str]:
    """Relative paths of everything below a directory that isn't itself a directory; links are not followed."""
    for root, folders, names in os.walk(directory, followlinks=False):
        base = Path(root)
        links = [folder for folder in folders if (base / folder).is_symlink()]
        for name in (*names, *links):
            yield (base / name).relative_to(directory).as_posix()

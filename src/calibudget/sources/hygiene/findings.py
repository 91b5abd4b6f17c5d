"""What a check found in the texts of one set, kept so that they needn't be read again (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from calibudget.records import Record, SourceFile
from calibudget.sources import cache_files
from calibudget.sources.cache_files import keep, kept_path, read_kept
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.checks import Matches
from calibudget.sources.index import said_of_rows
from calibudget.sources.source import SourceRead
from calibudget.sources.spec import SourceSpec
from calibudget.store.codec import Shape
from calibudget.values import Digest

_SCHEMA: Final = "calibudget.findings/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """A set whose texts a check reads, and what they follow from."""

    records: Callable[[], Iterable[Record]]
    spec: SourceSpec
    files: Sequence[SourceFile]

    @property
    def bytes(self) -> int:
        """Length of what it is read from."""
        return sum(file.bytes for file in self.files)

    def follows_from(self) -> list[object]:
        """What decides the texts, whatever the set is called; equal ones may be dropped, kept or renamed."""
        return [said_of_rows(self.spec), [asdict(file) for file in self.files]]


def texts_of(source: Resolved) -> Texts:
    """The texts of a source after its pass."""
    return Texts(records=source.again, spec=source.scan.spec, files=source.scan.files)


def texts_read(spec: SourceSpec, read: SourceRead) -> Texts:
    """The texts of a source that is in memory."""
    return Texts(records=lambda: read.records, spec=spec, files=read.files)


def kept_findings(
    folder: Path | None,
    check: Sequence[object],
    sets: Mapping[str, Texts],
    look: Callable[[], Mapping[str, Matches]],
) -> Mapping[str, Matches]:
    """What a check finds in one set: what is kept of an earlier time, or what it finds now, which is then kept.

    Args:
        folder: the cache, None to neither look nor keep.
        check: its name and all its settings.
        sets: every set that the findings follow from, under the names that they use; small ones aren't worth it.
        look: makes the check.
    """
    if folder is None or sum(one.bytes for one in sets.values()) < cache_files.SMALL:
        return look()
    contents = [[name, one.follows_from()] for name, one in sets.items()]
    path = kept_path(folder, "findings", _SCHEMA, check, contents)
    kept = read_kept(path, _FILE.adapter)
    if kept is not None:
        return {
            other: Matches(digests=frozenset(map(bytes.fromhex, one.digests)), others=one.others)
            for other, one in kept.found.items()
        }
    found = look()
    met = {
        other: {"digests": sorted(digest.hex() for digest in one.digests), "others": one.others}
        for other, one in found.items()
    }
    keep(path, {"schema": _SCHEMA, "found": met})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Met:
    """What is kept of `Matches`."""

    digests: Annotated[list[Digest], Field(min_length=1)]
    others: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A file of findings, and its own name, by which a copy of another is told."""

    schema: Literal["calibudget.findings/1"]
    name: str
    found: dict[str, _Met]


_FILE: Final = Shape(_Kept)

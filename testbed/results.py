"""What the testbed has measured: one file of JSON lines that several processes add to, each line by its key.

A line is added whole, under a lock, and a key is never added twice. A line that a kill tore off is cut away when the
file is next opened by the process that hands out the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from calibudget.errors import ArtefactError
from calibudget.store.canonical import canonical_json, loads_object, sha256_hex
from calibudget.store.files import write_atomic

RESULTS_NAME: Final = "results.jsonl"
SCHEMA: Final = "calibudget.testbed-results/1"

#: A line's values.
Line = Mapping[str, Any]


def key_of(kind: str, **parts: object) -> str:
    """The key of something measured: a digest of all that it depends on."""
    return f"{kind}-{sha256_hex(canonical_json({'kind': kind, **parts}))[:32]}"


class Results:
    """The lines of one file, by key; what other processes add is seen when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.with_name(f"{path.name}.lock"))
        self._offset = 0
        self._lines: dict[str, Line] = {}
        self._refresh()

    @classmethod
    def create(cls, path: Path, binding: Mapping[str, str]) -> Results:
        """Open a file for a protocol and its data, new or with what was measured before.

        Args:
            path: the file.
            binding: digests that all its lines belong to.

        Raises:
            ArtefactError: the file belongs to another protocol or other data.
        """
        header = {"key": "header", "schema": SCHEMA, **binding}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomic(path, canonical_json(header) + b"\n")
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(path, whole)
        results = cls(path)
        found = results.find("header")
        if found != header:
            raise ArtefactError(
                f"{path}: belongs to another protocol or other data; name another folder, or take those"
            )
        return results

    @classmethod
    def read(cls, path: Path, protocol: str) -> Results:
        """Open a file only to read it.

        Raises:
            ArtefactError: it isn't there, or belongs to a protocol of another digest.
        """
        results = cls(path)
        header = results.find("header")
        if header is None or header.get("schema") != SCHEMA or header.get("protocol") != protocol:
            raise ArtefactError(f"{path}: holds no results of this protocol")
        return results

    @classmethod
    def merge(cls, paths: Sequence[Path], target: Path) -> Results:
        """Put the lines of several files of one protocol into a new one; of equal keys the first file's line stays.

        Raises:
            ArtefactError: the files belong to different protocols or data, or the target exists.
        """
        if target.exists():
            raise ArtefactError(f"{target}: exists already")
        headers = {path: cls(path).find("header") for path in paths}
        first = headers[paths[0]]
        for path, header in headers.items():
            if header is None or header != first:
                raise ArtefactError(f"{path}: belongs to another protocol or other data than {paths[0]}")
        lines: dict[str, Line] = {}
        for path in paths:
            lines = {**cls(path)._lines, **lines}
        ordered = [line for key, line in lines.items() if key == "header"]
        ordered += [line for key, line in lines.items() if key != "header"]
        write_atomic(target, b"".join(canonical_json(dict(line)) + b"\n" for line in ordered))
        return cls(target)

    def find(self, key: str) -> Line | None:
        """The line of a key, None while there is none."""
        if key not in self._lines:
            self._refresh()
        return self._lines.get(key)

    def add(self, key: str, values: Mapping[str, object]) -> Line:
        """Add a line unless its key is there already; the line that stands."""
        with self._lock:
            self._refresh()
            if key not in self._lines:
                data = canonical_json({"key": key, **values}) + b"\n"
                with self._path.open("ab") as handle:
                    handle.write(data)
                    handle.flush()
                    os.fsync(handle.fileno())
                self._refresh()
        return self._lines[key]

    def lines(self, kind: str) -> Iterator[Line]:
        """All lines of a kind, in the order they were added."""
        self._refresh()
        return (line for key, line in list(self._lines.items()) if key.startswith(f"{kind}-"))

    def _refresh(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as handle:
            handle.seek(self._offset)
            data = handle.read()
        end = data.rfind(b"\n") + 1
        for text in data[:end].splitlines():
            line = loads_object(text, self._path.name)
            key = line.get("key")
            if not isinstance(key, str):
                raise ArtefactError(f"{self._path}: a line has no key")
            self._lines.setdefault(key, line)
        self._offset += end

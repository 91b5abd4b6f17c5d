"""A reader in another process: it reads requests and writes replies, a JSON object a line.

Started by `calibudget.sources.readers` as `python -m calibudget.sources.worker`. It ends when its input ends, so it
never outlives the process that started it; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from calibudget.errors import DataError
from calibudget.sources.files import DataFile
from calibudget.sources.index import Identities, find_or_make
from calibudget.sources.inputs import FileInput
from calibudget.sources.spec import SourceSpec
from calibudget.sources.table import temporary_folder

_PIECE: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a reader is asked for.

    Attributes:
        spec: what the recipe says of the source.
        file: which of its files.
        folder: where the file of identities goes, unless it is kept.
        cache: where it is kept, None for nowhere.
    """

    spec: SourceSpec
    file: DataFile
    folder: Path
    cache: Path | None


@cache
def _requests() -> TypeAdapter[Any]:
    return TypeAdapter(Request)


def to_json(request: Request) -> bytes:
    """A request as one line of ASCII."""
    return json.dumps(_requests().dump_python(request, mode="json")).encode("ascii")


def make(request: Request) -> Identities:
    """See `find_or_make`."""
    given = FileInput(request.spec, request.file)
    return find_or_make(request.spec, given, request.folder, request.cache)


def reply(line: bytes) -> dict[str, str]:
    """Where the file of identities lies that a request asks for, or why there is none."""
    try:
        found = make(_requests().validate_json(line))
    except DataError as error:
        return {"error": str(error)}
    found.close()
    return {"path": str(found.path)}


def pieces(line: str) -> Iterator[bytes | str]:
    """The bytes of the file of identities that a request asks for, or the reply that says why there is none."""
    request = _requests().validate_json(line)
    with tempfile.TemporaryDirectory(prefix="calibudget-", dir=temporary_folder()) as folder:
        try:
            found = make(replace(request, folder=Path(folder)))
        except DataError as error:
            yield json.dumps({"error": str(error)})
            return
        with found.handle as handle:
            handle.seek(0)
            while piece := handle.read(_PIECE):
                yield piece


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to handle
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        replies.write(json.dumps(reply(line)).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()

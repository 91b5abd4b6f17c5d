"""Who reads the inputs of sources: this process, several of this machine, or actors of a Ray cluster.

Whoever reads finds the same identities, so that nothing after it depends on who that was. Small inputs are
always read here: sending them away would take longer. The data must lie under the same path on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from calibudget.errors import CalibudgetError, DataError
from calibudget.sources import cache_files
from calibudget.sources.files import DataFile
from calibudget.sources.identity_index import Identities, IdentityStream, find_or_make, read_identities
from calibudget.sources.identity_table import Scratch, writing
from calibudget.sources.inputs import FileInput, Input
from calibudget.sources.spec import SourceSpec
from calibudget.store.json_records import Shape
from calibudget.workers import EndedError, Engine, Pool, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How sources are read; none of it changes a byte of what is found.

    Attributes:
        engine: "local" for this machine, "ray" for actors on a cluster.
        workers: how many inputs are read at once; 1 with "local" is this process.
        smallest: bytes under which this process reads a file itself; it reads small ones itself in any case.
        address: a Ray cluster's; None starts one on this machine.
        cache: the folder where identities and findings are kept for the next time, None to keep nothing.
    """

    engine: Engine = "local"
    workers: int = 1
    smallest: int = 0
    address: str | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
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


_REQUEST: Final = Shape(_Request)


class ReadingHandler:
    """Makes a file of identities for each request."""

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Where the file lies."""
        asked = _REQUEST.adapter.validate_python(request)
        found = find_or_make(asked.spec, FileInput(asked.spec, asked.file), asked.folder, asked.cache)
        found.close()
        return {"path": str(found.path)}


class Readers:
    """Makes files of identities; a context manager, whose workers start when they are needed and end with the block."""

    def __init__(self, reading: Reading | None = None) -> None:
        self._reading = reading or Reading()
        self._scratch = Scratch()
        self._stack = ExitStack()
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, spec: SourceSpec, given: Input) -> Callable[[], Identities | IdentityStream]:
        """A function that gives the identities of an input, waiting for them if need be.

        Raises:
            DataError: from the function: the input can't be read, or a row can't be used and isn't to be skipped.
        """
        kept = self._reading.cache
        size = given.file.version[0] if isinstance(given, FileInput) else 0
        is_here = self._reading.engine == "local" and self._reading.workers == 1
        if is_here or not isinstance(given, FileInput) or size < max(self._reading.smallest, cache_files.SMALL):
            if kept is None or size < cache_files.SMALL:
                return partial(IdentityStream, spec, given)
            return partial(find_or_make, spec, given, self._scratch.folder(), kept)
        request = _Request(spec=spec, file=given.file, folder=self._scratch.folder(), cache=kept)
        return partial(_found, self._send(request), self._send, request)

    def _send(self, request: _Request) -> Future[Reply]:
        if self._pool is None:
            how = self._reading
            pool = Pool(ReadingHandler, workers=how.workers, engine=how.engine, address=how.address, refusal=DataError)
            self._pool = self._stack.enter_context(pool)
        as_json = partial(_REQUEST.adapter.dump_python, request, mode="json")
        return self._pool.submit(as_json, folder=request.folder)


def _found(waiting: Future[Reply], send: Callable[[_Request], Future[Reply]], request: _Request) -> Identities:
    """What a reader made, opened only now: of many inputs one file is open at a time."""
    path = _path(waiting, request)
    found = read_identities(path)
    if found is None and path.parent == request.cache:  # removed from the cache meanwhile, as anybody may
        path = _path(send(replace(request, cache=None)), request)
        found = read_identities(path)
    if found is None:
        raise CalibudgetError(f"{path.name}: what a reader wrote isn't what came")
    return replace(found, is_kept=path.parent == request.cache)


def _path(waiting: Future[Reply], request: _Request) -> Path:
    try:
        with writing(request.folder):
            return Path(waiting.result()["path"])
    except EndedError as ended:
        raise CalibudgetError(f"{request.file.name}: reading it ended {ended}") from ended

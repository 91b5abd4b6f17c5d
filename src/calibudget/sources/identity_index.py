"""The identities of one input's rows, found in one pass that keeps no row, in a file only where they are handed on.

A file (docs/formats.md) is an Arrow stream of `identity_schema`, then one line of canonical JSON that says what was
read, then the SHA-256 of all that. A cache keeps such files under a name made of everything that they follow from:
the input's bytes, what the recipe says of reading them, and the code that does it.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError
from calibudget.records import SourceFile
from calibudget.sources.cache_files import kept_path, make_ready, new_file, open_whole
from calibudget.sources.field_meanings import check_row, fields_to_check, is_blank, passed_over, reason_of
from calibudget.sources.identity_table import writing
from calibudget.sources.inputs import Input
from calibudget.sources.json_files import Block
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import SourceSpec, filter_values
from calibudget.store.canonical import canonical_json
from calibudget.store.json_records import Shape

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a batch, few more where they come as blocks.
_BATCH: Final = 16_384
#: How many different reasons for skipped rows are kept, the first ones; and the reason that stands for all others.
_REASONS: Final = 20
_OTHER_REASONS: Final = "other reasons"
#: How many names of columns that aren't used are kept, the first in code-point order; and how long each may be.
_COLUMNS: Final = 1000
_NAME: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Rows that `on_error: skip` left out for one reason.

    Attributes:
        rows: how many.
        first: where the first of them stands, in words.
    """

    rows: int
    first: str


def add_skips(skips: dict[str, Skips], reason: str, rows: int, place: Callable[[], str]) -> None:
    """Count rows under a reason; the twenty-first and later ones stand together as others.

    Where the first of them stands is asked only of a new reason: to count lines takes time.
    """
    reason = reason if reason in skips or len(skips) < _REASONS else _OTHER_REASONS
    before = skips.get(reason)
    skips[reason] = Skips(rows=rows, first=place()) if before is None else replace(before, rows=before.rows + rows)


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of rows.

    Attributes:
        read: rows found.
        filtered: rows that the `where` filter left out.
        skipped: rows that `on_error: skip` left out.
        skips: those, by the reason.
        columns_not_used: fields that rows had and nothing used, sorted; the first thousand.
        fields: fields that rows had, sorted, where the recipe leaves some out; the first thousand.
    """

    read: int = 0
    filtered: int = 0
    skipped: int = 0
    skips: dict[str, Skips] = field(default_factory=dict)
    columns_not_used: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another counted too."""
        self.read += other.read
        self.filtered += other.filtered
        self.skipped += other.skipped
        for reason, one in other.skips.items():
            add_skips(self.skips, reason, one.rows, partial(str, one.first))
        self.columns_not_used = _with_names(self.columns_not_used, other.columns_not_used)
        self.fields = _with_names(self.fields, other.fields)

    def note(self, maker: RecordMaker, beside: Iterable[str]) -> None:
        """Keep what a maker of records saw of the rows' fields, and the fields beside the rows."""
        self.columns_not_used = _with_names(self.columns_not_used, maker.unused.union(beside))
        self.fields = _with_names(self.fields, maker.seen.union(beside) if maker.seen else ())

    @property
    def saw_all(self) -> bool:
        """Whether `fields` are all of them."""
        return len(self.fields) < _COLUMNS


def _with_names(names: Sequence[str], more: Iterable[str]) -> list[str]:
    """Names of columns with others; what no file can hold of a name is escaped, and a very long one is cut."""
    told = {name.encode("utf-8", "backslashreplace").decode("utf-8")[:_NAME] for name in more}
    return sorted(told.union(names))[:_COLUMNS]


def identity_schema() -> pa.Schema:
    """The columns of identities.

    text and prompt: digests of the normal form; at: where the row stands in its input; answer: which label it has, -1
    for none; own_id: the record's own id, null where the recipe takes none.
    """
    import pyarrow as pa

    columns = {"text": pa.binary(32), "prompt": pa.binary(32), "at": pa.int64(), "answer": pa.int8()}
    return pa.schema([*columns.items(), ("own_id", pa.string())])


def name_rows(spec: SourceSpec, given: Input, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Read an input whole, once.

    Raises:
        DataError: the input can't be read, or a row can't be used and isn't to be skipped; its place is named.
    """
    schema = identity_schema()
    maker = RecordMaker(spec)
    texts, prompts, places, answers, own_ids = _columns()
    for found in given.blocks():
        many = maker.name_block(found) if isinstance(found, Block) else None
        if isinstance(found, Block) and many is not None:
            tally.read += len(found.rows)
            texts += many[0]
            prompts += many[1]
            places.extend(found.places)
            answers += array("b", [-1]) * len(found.rows)
        else:
            for at, fields in zip(found.places, found.rows, strict=True) if isinstance(found, Block) else (found,):
                tally.read += 1
                try:
                    if isinstance(fields, DataError):
                        raise fields
                    named = maker.name(fields)
                except DataError as error:
                    _skip(spec, given, at, error, tally)
                    continue
                if named is None:
                    tally.filtered += 1
                    continue
                text, prompt, own_id, answer = named
                texts += text
                prompts += prompt
                places.append(at)
                answers.append(answer)
                if own_id is not None:
                    own_ids.append(own_id)
        if len(places) >= _BATCH:
            yield _batch(schema, (texts, prompts, places, answers), own_ids)
            texts, prompts, places, answers, own_ids = _columns()
    tally.note(maker, _beside(spec, given))
    yield _batch(schema, (texts, prompts, places, answers), own_ids)


def _columns() -> tuple[bytearray, bytearray, array[int], array[int], list[str]]:
    """Empty columns to put rows into, of which no Python object is kept: the collector would look at each."""
    return bytearray(), bytearray(), array("q"), array("b"), []


def _beside(spec: SourceSpec, given: Input) -> list[str]:
    """The fields beside the rows of an object, which nothing uses.

    Raises:
        DataError: one of them says what its rows lack.
    """
    beside = given.beside()
    lasts = {name.rpartition(".")[2]: value for name, value in beside.items()}
    said = {name: value for name, value in lasts.items() if not passed_over(name, spec.ignored)}
    try:
        check_row(said, fields_to_check(said, ()))
    except DataError as error:
        place = f"{spec.name}: beside `rows: {spec.rows}`"
        raise DataError(f"{place}: {error}; or write it into the rows") from error
    return sorted(name for name, value in beside.items() if not is_blank(value))


def column(batch: pa.RecordBatch, name: str, dtype: str) -> NDArray[Any]:
    """A column of identities that has no nulls and one width, as numpy reads its buffer."""
    return np.frombuffer(batch[name].buffers()[1], dtype=dtype, count=len(batch))


def _batch(
    schema: pa.Schema, columns: tuple[bytearray, bytearray, array[int], array[int]], own_ids: Sequence[str]
) -> pa.RecordBatch:
    """What names rows as a batch.

    It is made of buffers: `pyarrow.array` and `to_numpy` import pandas where that is installed, some 40 MB for nothing.
    """
    import pyarrow as pa

    rows = len(columns[2])
    arrays = [
        pa.Array.from_buffers(schema.field(number).type, rows, [None, pa.py_buffer(values)])
        for number, values in enumerate(columns)
    ]
    arrays.append(_strings(own_ids) if own_ids else pa.nulls(rows, pa.string()))
    return pa.record_batch(arrays, schema=schema)


def _strings(texts: Sequence[str]) -> pa.StringArray:
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _skip(spec: SourceSpec, given: Input, at: int, error: DataError, tally: Tally) -> None:
    if spec.on_error == "refuse":
        raise DataError(f"{spec.name}: {given.place(at)}: {error}") from error
    tally.skipped += 1
    add_skips(tally.skips, reason_of(error), 1, partial(given.place, at))


_SCHEMA: Final = "calibudget.identities/2"
#: The longest line that a file's last part may be.
_SUMMARY_BYTES: Final = 1_048_576
#: Fields of a source's description that change no identity.
_ELSEWHERE: Final = ("label", "kind", "path", "hub", "subset", "split", "revision", "streaming", "duplicates")


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
        import pyarrow as pa

        self.handle.seek(0)
        return iter(pa.ipc.open_stream(pa.PythonFile(self.handle, mode="r")))


class IdentityStream:
    """The identities of an input as it is read, with the methods of `Identities`: nothing of it is kept."""

    def __init__(self, spec: SourceSpec, given: Input) -> None:
        self._spec, self._given = spec, given
        self.tally = Tally()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Identities`; `DataError` as of `find_or_make`."""
        return name_rows(self._spec, self._given, self.tally)

    @property
    def input(self) -> SourceFile:
        """See `Identities`; to be asked once all were read."""
        return self._given.bound()

    def forget(self) -> None:
        """See `Identities`; there is nothing to forget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """The line after the stream."""

    schema: str
    tally: Tally
    input: SourceFile


_SUMMARY: Final = Shape(_Summary)


def find_or_make(spec: SourceSpec, given: Input, folder: Path, kept: Path | None) -> Identities:
    """The identities of an input: those that a cache keeps, or new ones; without a cache their file goes to `folder`.

    Raises:
        DataError: the input can't be read, changed meanwhile, or holds a row that can't be used.
    """
    if kept is None:
        with writing(folder):
            return make_identities(spec, given, folder / f"{secrets.token_hex(16)}.identities")
    bound = given.bound()
    path = kept_path(kept, "identities", _SCHEMA, asdict(bound), said_of_rows(spec))
    found = read_identities(path)
    if found is not None and found.input == bound:
        return replace(found, is_kept=True)
    if found is not None:
        found.close()
    try:
        make_ready(kept)
        return replace(make_identities(spec, given, path, bound), is_kept=True)
    except OSError:  # a cache that can't be written costs time, not the run
        with writing(folder):
            return make_identities(spec, given, folder / path.name, bound)


def make_identities(spec: SourceSpec, given: Input, path: Path, bound: SourceFile | None = None) -> Identities:
    """Read an input and write its file of identities, which is whole or isn't there.

    Raises:
        DataError: as `find_or_make`; also where the input isn't what is `bound`.
    """
    import pyarrow as pa

    tally = Tally()
    with new_file(path) as out:
        with pa.ipc.new_stream(pa.PythonFile(out, mode="w"), identity_schema()) as writer:
            for batch in name_rows(spec, given, tally):
                writer.write_batch(batch)
        read = given.bound()
        if bound is not None and read != bound:
            raise DataError(f"{spec.name}: {read.name}: changed while it was read; run again")
        out.write(b"\n" + canonical_json({"schema": _SCHEMA, "tally": asdict(tally), "input": asdict(read)}))
    return Identities(path=path, handle=out.handle, tally=tally, input=read)


def read_identities(path: Path) -> Identities | None:
    """A file of identities; None where there is none or it isn't what was written."""
    whole = open_whole(path)
    if whole is None:
        return None
    handle, size = whole
    handle.seek(max(0, size - _SUMMARY_BYTES))
    last = handle.read(min(size, _SUMMARY_BYTES)).rpartition(b"\n")[2]
    summary: _Summary = _SUMMARY.adapter.validate_json(last, strict=True)
    return Identities(path=path, handle=handle, tally=summary.tally, input=summary.input)


def said_of_rows(spec: SourceSpec) -> dict[str, object]:
    """What the recipe says that decides what a source's rows are; a filter by the texts that it compares."""
    said: dict[str, object] = {name: value for name, value in asdict(spec).items() if name not in _ELSEWHERE}
    said["where"] = {name: sorted(map(repr, filter_values(values))) for name, values in spec.where.items()}
    return said

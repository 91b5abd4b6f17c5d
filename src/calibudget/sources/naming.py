"""What names the rows of one input, in columns: the kernel of the pass, which sees every row and keeps none."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import DataError
from calibudget.sources.inputs import Input
from calibudget.sources.making import RecordMaker
from calibudget.sources.spec import SourceSpec

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a batch.
_BATCH: Final = 16_384
#: How many of the skipped rows are kept as messages.
EXAMPLES: Final = 5
#: How many names of columns that aren't used are kept, the first in code-point order; and how long each may be.
_COLUMNS: Final = 1000
_NAME: Final = 100


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of rows.

    Attributes:
        read: rows found.
        filtered: rows that the `where` filter left out.
        skipped: rows that `on_error: skip` left out.
        examples: why, for the first few of them.
        columns_not_used: fields that rows had and nothing used, sorted; the first thousand.
    """

    read: int = 0
    filtered: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)
    columns_not_used: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another counted too."""
        self.read += other.read
        self.filtered += other.filtered
        self.skipped += other.skipped
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        self.note_unused(other.columns_not_used)

    def note_unused(self, names: Iterable[str]) -> None:
        """Add names of columns; what no file can hold of a name is escaped, and a very long one is cut."""
        told = {name.encode("utf-8", "backslashreplace").decode("utf-8")[:_NAME] for name in names}
        self.columns_not_used = sorted(told.union(self.columns_not_used))[:_COLUMNS]


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

    Args:
        spec: what the recipe says of its source.
        given: the input.
        tally: counts what becomes of the rows.

    Raises:
        DataError: the input can't be read, or a row can't be used and isn't to be skipped; its place is named.
    """
    schema = identity_schema()
    maker = RecordMaker(spec)
    name = maker.name
    columns: list[list[Any]] = [[], [], [], [], []]
    texts, prompts, places, answers, own_ids = columns
    rows = 0
    for at, fields in given.rows():
        rows += 1
        try:
            if isinstance(fields, DataError):
                raise fields
            named = name(fields)
        except DataError as error:
            _skip(spec, given, at, error, tally)
            continue
        if named is None:
            tally.filtered += 1
            continue
        text, prompt, own_id, answer = named
        texts.append(text)
        prompts.append(prompt)
        places.append(at)
        answers.append(answer)
        own_ids.append(own_id)
        if len(texts) == _BATCH:
            yield _batch(schema, columns)
    tally.read += rows
    tally.note_unused(maker.unused)
    yield _batch(schema, columns)


def column(batch: pa.RecordBatch, name: str, dtype: str) -> NDArray[Any]:
    """A column of identities that has no nulls and one width, as numpy reads its buffer."""
    return np.frombuffer(batch[name].buffers()[1], dtype=dtype, count=len(batch))


def _batch(schema: pa.Schema, columns: Sequence[list[Any]]) -> pa.RecordBatch:
    """The columns, which are empty afterwards, as a batch.

    It is made of buffers: `pyarrow.array` and `to_numpy` import pandas where that is installed, some 40 MB for nothing.
    """
    import pyarrow as pa

    texts, prompts, places, answers, own_ids = columns
    buffers = [b"".join(texts), b"".join(prompts), array("q", places), array("b", answers)]
    arrays = [
        pa.Array.from_buffers(schema.field(number).type, len(texts), [None, pa.py_buffer(buffer)])
        for number, buffer in enumerate(buffers)
    ]
    arrays.append(pa.nulls(len(own_ids), pa.string()) if None in own_ids else _strings(own_ids))
    for values in columns:
        values.clear()
    return pa.record_batch(arrays, schema=schema)


def _strings(texts: Sequence[str]) -> pa.StringArray:
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _skip(spec: SourceSpec, given: Input, at: int, error: DataError, tally: Tally) -> None:
    if spec.on_error == "refuse":
        raise DataError(f"source {spec.label!r}: {given.place(at)}: {error}") from error
    tally.skipped += 1
    if len(tally.examples) < EXAMPLES:
        tally.examples.append(f"{given.place(at)}: {error}")

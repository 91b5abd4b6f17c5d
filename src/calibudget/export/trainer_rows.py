"""A train set's rows in the forms that trainers take, each file whole or absent."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibudget.errors import InputError, TrainingError
from calibudget.store.canonical import canonical_json, compact_json
from calibudget.store.checksums import file_digest
from calibudget.store.files import atomic_file, write_atomic
from calibudget.store.train_set import write_saved
from calibudget.training.data import TrainingExample

#: Label of a token that isn't taught.
NOT_TAUGHT: Final = -100
#: What trainers know a set of tokens by.
TOKENS: Final = pa.schema(
    [
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("attention_mask", pa.list_(pa.int8()), nullable=False),
        pa.field("labels", pa.list_(pa.int32()), nullable=False),
    ]
)
_ROWS: Final = 4096
#: How Megatron's indexed data sets begin, and its code for int32.
_INDEXED: Final = b"MMIDIDX\x00\x00"
_INDEXED_INT32: Final = 4


def labels_of(example: TrainingExample) -> list[int]:
    """An example's labels: its response's ids, and `NOT_TAUGHT` over the prompt."""
    response: list[int] = example.ids[example.prompt_length :].tolist()
    return [NOT_TAUGHT] * example.prompt_length + response


def write_tokens(folder: Path, examples: Sequence[TrainingExample], *, saved: bool) -> None:
    """Write ids, masks and labels as `train.parquet`, or as `train.dataset`, which `load_from_disk` reads."""
    batches = (_tokens(examples[start : start + _ROWS]) for start in range(0, len(examples), _ROWS))
    if saved:
        write_saved(folder / "train.dataset", batches, TOKENS)
        return
    with atomic_file(folder / "train.parquet") as handle, pq.ParquetWriter(handle, TOKENS, compression="zstd") as to:
        for batch in batches:
            to.write_batch(batch)


def write_messages(folder: Path, examples: Sequence[TrainingExample], bos: int | None) -> None:
    """Write ms-swift's rows: one turn of token ids with a weight each; ms-swift puts the `bos` in front itself."""

    def row(example: TrainingExample) -> Mapping[str, object]:
        ids, taught = example.ids.tolist(), [0.0] * example.prompt_length + [1.0] * example.response_length
        if bos is not None:
            if ids[0] != bos:
                raise TrainingError(
                    f"{example.name}: its template begins without the BOS that ms-swift puts in front of every row, so "
                    "other tokens would be trained than were scored; choose another trainer"
                )
            ids, taught = ids[1:], taught[1:]
        turn = {"role": "assistant", "content": {"token_ids": ids, "loss_scale": taught}}
        return {"messages": json.dumps([{"role": "user", "content": ""}, turn], separators=(",", ":"))}

    _write_lines(folder / "train.jsonl", map(row, examples))


def write_blend(folder: Path, rows: Sequence[tuple[TrainingExample, str, str]], epochs: int) -> None:
    """Write each source as token ids and as rendered text, with the blend that gives every source its quota.

    `NNN.bin` and `NNN.idx` are what Megatron's `--data-path` reads, `NNN.jsonl` has prompt and response as `input` and
    `output`. `blend.json` has counts, weights and tokens, `blend.txt` the arguments of `--data-path`: its samples are
    sequences of one length, cut out of the tokens end to end, so sources weigh there by their tokens, and each row is
    seen as often as any other.
    """
    by_source: dict[str, list[tuple[TrainingExample, str, str]]] = {}
    for row in rows:
        by_source.setdefault(row[0].source, []).append(row)
    names = {source: f"{number:03}" for number, source in enumerate(sorted(by_source))}
    for source, name in names.items():
        _write_indexed(folder / name, [example for example, _, _ in by_source[source]])
        texts = ({"input": prompt, "output": completion} for _, prompt, completion in by_source[source])
        _write_lines(folder / f"{name}.jsonl", texts)
    total = len(rows)
    counts = {source: len(by_source[source]) for source in names}
    tokens = {source: sum(row[0].length for row in by_source[source]) for source in names}
    blend = {
        "schema": "calibudget.blend/1",
        "epochs": epochs,
        "train_samples": total * epochs,
        "sources": {
            source: {
                "file": f"{name}.jsonl",
                "count": counts[source],
                "weight": counts[source] / total,
                "tokens": tokens[source],
            }
            for source, name in names.items()
        },
    }
    write_atomic(folder / "blend.json", canonical_json(blend))
    path = " ".join(f"{tokens[source] / sum(tokens.values())!r} {name}" for source, name in names.items())
    write_atomic(folder / "blend.txt", f"{path}\n".encode())


def _write_indexed(path: Path, examples: Sequence[TrainingExample]) -> None:
    """Write token ids as Megatron's indexed data set, a document each: little-endian int32, and where each begins."""
    lengths = np.array([example.length for example in examples], "<i4")
    begins = np.concatenate(([0], np.cumsum(lengths[:-1], dtype="<i8") * lengths.itemsize)).astype("<i8")
    with atomic_file(path.with_suffix(".bin")) as handle:
        handle.writelines(example.ids.astype("<i4").tobytes() for example in examples)
    head = _INDEXED + struct.pack("<QBQQ", 1, _INDEXED_INT32, len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    write_atomic(path.with_suffix(".idx"), head + lengths.tobytes() + begins.tobytes() + documents.tobytes())


def write_croissant(folder: Path, rows: Iterable[Mapping[str, object]], name: str, description: str) -> int:
    """Write the rows as JSON lines of texts, and what describes them to whoever reads Croissant 1.0; they are counted.

    Raises:
        InputError: there are no rows.
    """
    file, fields = "train.jsonl", list[str]()

    def flat() -> Iterator[Mapping[str, object]]:
        for row in rows:
            texts = {key: value if isinstance(value, str) else compact_json(value) for key, value in row.items()}
            fields.extend(key for key in texts if key not in fields)
            yield texts

    count = _write_lines(folder / file, flat())
    if not fields:
        raise InputError("the train set is empty; there is nothing to describe")
    digest = file_digest(folder / file)
    metadata: dict[str, object] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": name,
        "description": description,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "encodingFormat": "application/jsonlines",
                "contentSize": f"{digest.bytes} B",
                "sha256": digest.sha256,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "train",
                "name": "train",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"train/{field}",
                        "name": f"train/{field}",
                        "dataType": "sc:Text",
                        "source": {"fileObject": {"@id": file}, "extract": {"column": field}},
                    }
                    for field in fields
                ],
            }
        ],
    }
    write_atomic(folder / "croissant.json", canonical_json(metadata))
    return count


def _tokens(examples: Sequence[TrainingExample]) -> pa.RecordBatch:
    columns = {
        "input_ids": [example.ids for example in examples],
        "attention_mask": [[1] * example.length for example in examples],
        "labels": [labels_of(example) for example in examples],
    }
    return pa.record_batch(columns, schema=TOKENS)


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    count = 0
    with atomic_file(path) as handle:
        for row in rows:
            handle.write(compact_json(row).encode() + b"\n")
            count += 1
    return count


#: The names of Croissant 1.0's own context: its terms by their own names, and others.
_TERMS: Final = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform"
)
_CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
}

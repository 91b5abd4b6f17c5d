"""One source, however its rows are ordered, parted into files and stored: the same splits."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source
from calibudget.store.artefacts import ids_sha256

ROWS: list[dict[str, object]] = [
    {"prompt": f"Say  {n % 400}\u00e9", "completion": f"It is\u2028{n % 450}.", "m": [n, None], "x": n / 7}
    for n in range(600)
]
Store = Callable[[list[dict[str, object]], Path], None]


def jsonl(rows: list[dict[str, object]], path: Path) -> None:
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def ndjson(rows: list[dict[str, object]], path: Path) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.with_suffix(".ndjson").write_text(text, encoding="utf-8")


def jsonl_gz(rows: list[dict[str, object]], path: Path) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False, indent=None) + "\n" for row in rows)
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(text.encode()))


def array(rows: list[dict[str, object]], path: Path) -> None:
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1))


def parquet(rows: list[dict[str, object]], path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(".parquet"), row_group_size=50)


def arrow(rows: list[dict[str, object]], path: Path) -> None:
    data = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path.with_suffix(".arrow")), "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=40)


def arrow_file(rows: list[dict[str, object]], path: Path) -> None:
    data = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path.with_suffix(".arrow")), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data)


def digests(folder: Path) -> tuple[object, ...]:
    source = open_source(SourceSpec(label="s", path="."), folder, selection_seed=2)
    split = Parting(source).draw(split_seed=1, calibration_size=30).split()
    originals = sorted(json.dumps(record.original, sort_keys=True) for record in split.candidates)
    calibration = ids_sha256(record.record_id for record in split.calibration)
    counts = (split.read, split.duplicates, split.shared_prompts, split.pool_size)
    return ids_sha256(split.candidate_ids), calibration, counts, originals


@pytest.mark.parametrize("store", [jsonl, ndjson, jsonl_gz, array, parquet, arrow, arrow_file])
@pytest.mark.parametrize("files", [1, 5])
def test_splits_depend_on_neither_order_nor_files_nor_kind(tmp_path: Path, store: Store, files: int) -> None:
    (tmp_path / "one").mkdir()
    jsonl(ROWS, tmp_path / "one" / "rows")
    expected = digests(tmp_path / "one")
    shuffled = random.Random(files).sample(ROWS, len(ROWS))  # noqa: S311
    (tmp_path / "other").mkdir()
    for number in range(files):
        store(shuffled[number::files], tmp_path / "other" / f"part-{number}")
    assert digests(tmp_path / "other") == expected

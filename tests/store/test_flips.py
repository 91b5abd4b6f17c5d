"""Bytes of artefacts, flipped: readers refuse them or read what was written, and never fall over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store.artefacts import SELECTION, STATISTICS, digest_selection
from calibudget.store.scores import read_scores, write_scores
from calibudget.store.splits import read_splits, write_splits
from calibudget.store.train_set import read_train, write_train

READERS: dict[str, Callable[[Path], Any]] = {
    "splits.parquet": read_splits,
    "scores.parquet": read_scores,
    "train.parquet": lambda path: list(read_train(path)),
    "train.jsonl": lambda path: list(read_train(path)),
    "statistics.json": STATISTICS.read,
    "selection.json": SELECTION.read,
}


@pytest.fixture
def artefacts(tmp_path: Path, splits: Any, scores: Any, statistics: Any, selection: Any) -> Path:
    """A folder with one artefact of each kind."""
    write_splits(tmp_path / "splits.parquet", splits, split_seed=42, selection_seed=42)
    write_scores(tmp_path / "scores.parquet", scores, error="nll+wrong", provenance={"model": {"name": "fake"}})
    row = {"source": "a", "record_id": "1", "role": "source", "prompt": "p", "completion": "c", "original": {"x": 1}}
    for name in ("train.parquet", "train.jsonl"):
        write_train(tmp_path / name, [row, {**row, "record_id": "2"}], layout="completion")
    STATISTICS.write(tmp_path / "statistics.json", statistics)
    SELECTION.write(tmp_path / "selection.json", digest_selection(selection))
    return tmp_path


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".parquet")])
@pytest.mark.parametrize(
    ("stride", "masks"), [(23, (0x01,)), pytest.param(1, (0x01, 0x10, 0x80, 0xFF), marks=pytest.mark.full)]
)
def test_a_damaged_table_is_refused_or_reads_as_written(artefacts: Path, name: str, stride: int, masks: Any) -> None:
    path, refused = artefacts / name, 0
    data, whole = path.read_bytes(), READERS[name](path)
    for position in range(0, len(data), stride):
        for mask in masks:
            path.write_bytes(data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :])
            try:
                assert READERS[name](path) == whole, position
            except ArtefactError as error:
                assert str(error).startswith(name)  # noqa: PT017
                refused += 1
    assert refused


def test_files_of_another_kind_are_refused_and_nothing_is_unpickled(tmp_path: Path, subtests: pytest.Subtests) -> None:
    pickled = b"cos\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR."
    for data in [b"", b"PAR1" * 3, b"\0" * 64, b"{}", b"[]", b"null", b'{"schema":1}', pickled, b"[" * 10**6]:
        for name, read in READERS.items():
            with subtests.test(name=name, data=data[:20]):
                (tmp_path / name).write_bytes(data)
                if name == "train.jsonl" and not data:
                    assert read(tmp_path / name) == []
                    continue
                with pytest.raises(ArtefactError, match=f"^{name}"):
                    read(tmp_path / name)
    assert not (tmp_path / "owned").exists()

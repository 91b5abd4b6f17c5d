"""Data sets that `datasets` saved, and hub data sets, all on local files: tests need no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source

pytestmark = pytest.mark.slow  # importing datasets takes seconds

Write = Callable[..., Path]
Read = Callable[..., SourceRead]
ROWS = [{"prompt": f"Say {number}", "completion": f"It is {number}."} for number in range(10)]


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    library = pytest.importorskip("datasets", reason="datasets isn't installed")
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    library.disable_progress_bars()
    yield library
    library.enable_progress_bars()


def test_a_saved_data_set_reads_like_its_rows(datasets: Any, tmp_path: Path, write: Write, read: Read) -> None:
    write("rows.jsonl", ROWS)
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=3)
    saved = read("saved")
    assert saved.records == read().records
    assert [file.name for file in saved.files] == [f"saved/data-0000{n}-of-00003.arrow" for n in range(3)]


def test_a_saved_data_set_of_several_splits_needs_one_of_them(datasets: Any, tmp_path: Path, read: Read) -> None:
    parts = {"train": datasets.Dataset.from_list(ROWS), "dev": datasets.Dataset.from_list(ROWS[:3])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    assert len(read("saved").records) == 10
    assert len(read("saved", split="dev").records) == 3
    with pytest.raises(DataError, match=r"saved has the splits .* not 'test'"):
        read("saved", split="test")


@pytest.mark.parametrize("state", [{"_data_files": []}, {"_data_files": [{"filename": "gone.arrow"}]}, {}])
def test_a_saved_data_set_that_is_not_whole_is_refused(tmp_path: Path, read: Read, state: object) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(DataError, match=r"saved/state\.json: names files that aren't there"):
        read("saved")


def test_a_saved_data_set_cannot_name_files_elsewhere(tmp_path: Path, read: Read) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "secret.arrow").write_bytes(b"x")
    state = {"_data_files": [{"filename": "../secret.arrow"}]}
    (tmp_path / "saved/state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(DataError, match="must not climb"):
        read("saved")


def test_a_hub_data_set_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    spec = SourceSpec(label="s", hub="nobody/nothing-like-this", subset="main", revision="v1")
    with pytest.raises(DataError, match=r"hub:nobody/nothing-like-this/main/train@v1 can't be loaded \(HF_HUB_OFFLINE"):
        read_source(spec, tmp_path)

"""No file is lost in silence, and none is read that isn't meant: splits, hidden files, folders without data files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.sources.files import find_files
from calibudget.sources.spec import SourceSpec
from calibudget.store.manifest import MANIFEST
from calibudget.store.train_set import read_train

ROW = {"instruction": "q", "output": "a"}
SHARDS = [f"d/data/{split}-00000-of-00001.jsonl" for split in ("test", "train", "validation")]


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(ROW | {"instruction": name}) + "\n", encoding="utf-8")


def found(folder: Path, path: str = "d", **spec: Any) -> list[str]:
    return [file.name for file in find_files(SourceSpec(label="s", path=path, **spec), folder).files]


@pytest.mark.parametrize("path", ["d", "d/data/*.jsonl", "d/*"])
@pytest.mark.parametrize(("split", "place"), [("test", 0), ("train", 1), ("validation", 2), ("dev", 2)])
def test_a_folder_with_splits_gives_the_one_that_is_named(tmp_path: Path, path: str, split: str, place: int) -> None:
    make(tmp_path, *SHARDS)
    assert found(tmp_path, path, split=split) == [SHARDS[place]]


def test_files_that_describe_a_set_are_told_and_not_read(tmp_path: Path) -> None:
    make(tmp_path, "d/a.jsonl", "d/dataset_info.json", "d/sub/package.json")
    given = find_files(SourceSpec(label="s", path="d"), tmp_path)
    assert [file.name for file in given.files] == ["d/a.jsonl"]
    assert [Path(name).name for name in given.beside] == ["dataset_info.json", "package.json"]


@pytest.mark.parametrize(
    ("names", "split", "chosen"),
    [
        (["train/0.jsonl", "test/0.jsonl", "valid/0.jsonl"], "train", ["train/0.jsonl"]),
        (["boolq.train.jsonl", "boolq.test.jsonl"], "train", ["boolq.train.jsonl"]),
        (["train_sft-0.jsonl", "test_sft-0.jsonl", "train_gen-0.jsonl"], "train_sft", ["train_sft-0.jsonl"]),
        (["TRAIN1.jsonl", "x_Dev.jsonl"], "train", ["TRAIN1.jsonl"]),
        (["a.jsonl", "b.jsonl"], "train", ["a.jsonl", "b.jsonl"]),
        (["a.jsonl", "b/latest.jsonl", "contest.jsonl"], "train", ["a.jsonl", "b/latest.jsonl", "contest.jsonl"]),
        (["test.jsonl", "b.jsonl"], "test", ["test.jsonl"]),
    ],
)
def test_names_of_files_and_folders_show_the_split(
    tmp_path: Path, names: list[str], split: str, chosen: list[str]
) -> None:
    make(tmp_path, *(f"d/{name}" for name in names))
    assert found(tmp_path, split=split) == [f"d/{name}" for name in chosen]


@pytest.mark.parametrize(
    ("names", "split", "message"),
    [
        (["test.jsonl", "validation.jsonl"], "train", r"test: test\.jsonl; validation: validation\.jsonl.*`split`"),
        (["test.jsonl", "a.jsonl"], "train", r"no split: a\.jsonl; test: test\.jsonl"),
        (["train.jsonl", "more.jsonl", "test.jsonl"], "train", r"no split: more\.jsonl"),
        (["test-0.jsonl"], "train", r"test: test-0\.jsonl"),
        (["a.jsonl"], "test", r"no split: a\.jsonl"),
        (["a.jsonl"], "train_sft", r"no file whose name shows the split 'train_sft': a\.jsonl"),
    ],
)  # fmt: skip
def test_a_folder_whose_split_is_not_clear_is_refused_with_its_files(
    tmp_path: Path, names: list[str], split: str, message: str
) -> None:
    make(tmp_path, *(f"d/{name}" for name in names))
    with pytest.raises(DataError, match=message):
        found(tmp_path, split=split)


def test_what_a_path_says_itself_is_taken_at_its_word(tmp_path: Path) -> None:
    make(tmp_path, *SHARDS, "x.test.jsonl", "test/a.jsonl")
    assert found(tmp_path, SHARDS[0]) == [SHARDS[0]]
    assert found(tmp_path, "*.test.jsonl") == ["x.test.jsonl"]
    assert found(tmp_path, "test") == ["test/a.jsonl"]
    assert found(tmp_path, SHARDS[0], split="test") == [SHARDS[0]]
    with pytest.raises(DataError, match=r"train-00000-of-00001\.jsonl is asked for its split 'test'"):
        found(tmp_path, SHARDS[1], split="test")


HIDDEN = ["d/.x.jsonl", "d/._a.jsonl", "d/.ipynb_checkpoints/a-checkpoint.jsonl", "d/sub/.cache/b.jsonl"]
HIDDEN += [
    "d/__MACOSX/a.jsonl",
    "d/a-checkpoint.jsonl",
    "d/_temporary/0/a.jsonl",
    "d/_SUCCESS",
    "d/a-checkpoint.jsonl.gz",
]


@pytest.mark.parametrize("path", ["d", "d/*.jsonl", "d/**/*.jsonl", "d/.*.jsonl", "**/*.jsonl"])
def test_hidden_files_and_checkpoints_are_never_read(tmp_path: Path, path: str) -> None:
    make(tmp_path, "d/a.jsonl", *HIDDEN)
    if path == "d/.*.jsonl":
        with pytest.raises(DataError, match="no file matches"):
            found(tmp_path, path)
    else:
        assert found(tmp_path, path) == ["d/a.jsonl"]
        assert found(tmp_path, str(tmp_path / path)) == ["d/a.jsonl"]


def test_a_data_directory_may_itself_be_hidden(tmp_path: Path) -> None:
    make(tmp_path, ".data/d/a.jsonl")
    assert found(tmp_path / ".data") == ["d/a.jsonl"]
    assert found(tmp_path, ".data/d/*.jsonl") == [".data/d/a.jsonl"]


def test_a_folder_without_data_files_says_what_it_holds(tmp_path: Path) -> None:
    make(tmp_path, "d/shard-000.tar", "d/sub/notes.txt")
    with pytest.raises(
        DataError, match=r"source 's': 'd' holds no data file: there is shard-000\.tar, sub/notes\.txt; known"
    ):
        found(tmp_path)


def test_a_folder_with_only_hidden_files_says_so(tmp_path: Path) -> None:
    make(tmp_path, "d/.a.jsonl")
    with pytest.raises(DataError, match=r"'d' holds only hidden files, which aren't read: \.a\.jsonl"):
        found(tmp_path)


def test_a_run_tells_the_files_beside_those_that_it_read(tmp_path: Path) -> None:
    make(tmp_path, *SHARDS, "d/README.md", "b.jsonl")
    assert find_files(SourceSpec(label="s", path="b.jsonl"), tmp_path).beside == ()
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{policy: equal, budget: 1, calibration: none, sources: {a: {path: d}}, companion: {path: e}}")
    make(tmp_path, "e/a.jsonl", "e/notes.txt")
    result = run(load_recipe(recipe), tmp_path / "out")
    assert f"a: files not read: d/README.md, {SHARDS[0]}, {SHARDS[2]}" in result.notes
    assert "companion: files not read: e/notes.txt" in result.notes
    manifest = MANIFEST.read(tmp_path / "out" / "manifest.json")
    assert manifest.sources["a"].files_not_read == ("d/README.md", SHARDS[0], SHARDS[2])
    assert manifest.companion is not None
    assert manifest.companion.files_not_read == ("e/notes.txt",)
    assert not verify(tmp_path / "out", data_dir=tmp_path).differences
    (tmp_path / "d" / "README.md").unlink()
    (difference,) = verify(tmp_path / "out", data_dir=tmp_path).differences
    assert "files_not_read" in str(difference)
    prompts = {value for row in read_train(result.train_file) for value in row["original"].values()}  # type: ignore[attr-defined]
    assert {SHARDS[1], "e/a.jsonl"} <= prompts

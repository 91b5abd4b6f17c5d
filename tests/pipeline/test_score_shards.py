"""Shards of one scoring, put together, are the bytes that one machine would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, ScoringError
from calibudget.pipeline.score import merge_scores, score
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.scoring.batches import Shard
from tests.conftest import fruit_recipe


@pytest.fixture
def recipe(tmp_path: Path, tiny_directory: Path) -> Recipe:
    calibration = {"per_source": 12, "max_new_tokens": 4, "batch_tokens": 300}
    fields: dict[str, Any] = {"model": str(tiny_directory), "budget": 21, "cache": False, "calibration": calibration}
    return load_recipe(fruit_recipe(tmp_path, count=40, checked=True, **fields))


def test_merged_shards_are_the_whole(calibudget: Any, recipe: Recipe, tmp_path: Path) -> None:
    score(recipe, output=tmp_path / "whole.parquet")
    parts = [tmp_path / f"part-{index}.parquet" for index in (1, 2, 3)]
    counts = [len(score(recipe, output=part, shard=Shard(index=i, count=3))) for i, part in enumerate(parts, start=1)]
    assert sum(counts) == 24
    assert all(counts)
    assert calibudget("score", "merge", *parts[::-1], "--output", tmp_path / "all.parquet").code == 0
    assert (tmp_path / "all.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    with pytest.raises(ArtefactError, match="shard 2 of 3 is missing"):
        merge_scores([parts[0], parts[2]], tmp_path / "other.parquet")
    twin = parts[0].with_name("twin.parquet")
    twin.write_bytes(parts[0].read_bytes())
    for again in (twin, parts[0]):
        with pytest.raises(ArtefactError, match=f"{again.name}: is shard 1, and so is"):
            merge_scores([*parts, again], tmp_path / "other.parquet")
    with pytest.raises(ArtefactError, match="is no shard"):
        merge_scores([tmp_path / "whole.parquet"], tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


def test_a_stranger_s_folder_where_work_would_be_kept_is_left_alone(recipe: Recipe, tmp_path: Path) -> None:
    part = tmp_path / "part.parquet"
    score(recipe, output=part, shard=Shard(index=1, count=1))
    theirs = tmp_path / "all.parquet.work"
    theirs.mkdir()
    (theirs / "notes.txt").write_text("precious")
    with pytest.raises(ArtefactError, match="work: holds other files"):
        merge_scores([part], tmp_path / "all.parquet")
    with pytest.raises(ArtefactError, match="work: holds other files"):
        score(recipe, output=tmp_path / "all.parquet")
    assert [path.name for path in theirs.iterdir()] == ["notes.txt"]


def test_more_shards_than_batches_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match=r"500 shards, and only \d+ batches"):
        score(recipe, output=tmp_path / "1.parquet", shard=Shard(index=1, count=500))
    assert not (tmp_path / "1.parquet").exists()


def test_shards_of_two_scorings_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    score(recipe, output=tmp_path / "1.parquet", shard=Shard(index=1, count=2))
    other = load_recipe(tmp_path / "recipe.yaml", ["calibration.batch_tokens=500"])
    score(other, output=tmp_path / "2.parquet", shard=Shard(index=2, count=2))
    with pytest.raises(ArtefactError, match="was scored otherwise"):
        merge_scores([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "all.parquet")

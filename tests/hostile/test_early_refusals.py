"""A wrong output or model is told before work begins: no source, no task is read for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError, ScoringError
from calibudget.pipeline.dry_run import dry_run
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.influence import influence, influence_config
from calibudget.pipeline.run import run
from calibudget.pipeline.score import score
from calibudget.pipeline.select import select
from calibudget.pipeline.train import train
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.store.files import directory_lock
from tests.conftest import fruit_recipe


@pytest.fixture
def recipe_of(tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe of two sources that would be found, with a model."""
    return lambda model="none", *overrides: load_recipe(fruit_recipe(tmp_path, model=str(model)), overrides)


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a source or a task has begun too early."""

    def read(*_: object, **__: object) -> None:
        pytest.fail("work began before the refusal")

    monkeypatch.setattr("calibudget.pipeline.prepare.check_distinct_files", read)
    monkeypatch.setattr("calibudget.pipeline.evaluate.load_benchmark", read)
    monkeypatch.setattr("calibudget.lm.loading.load_model", read)


def runs(recipe: Recipe, output: Path) -> None:
    run(recipe, output)


def scores(recipe: Recipe, output: Path) -> None:
    score(recipe, output=output / "scores.parquet")


def influences(recipe: Recipe, output: Path) -> None:
    influence(recipe, output, influence_config(recipe))


def evaluates(recipe: Recipe, output: Path) -> None:
    evaluate(recipe.model or "", EvaluationRequest(tasks=("piqa",), data_dir=output), output_dir=output)


@pytest.mark.parametrize("work", [runs, scores, influences, evaluates])
def test_an_output_that_cant_be_made_is_told_at_once(
    recipe_of: Any, tiny_directory: Path, tmp_path: Path, no_reading: Any, work: Any
) -> None:
    (tmp_path / "file").write_bytes(b"")
    recipe = recipe_of(tiny_directory)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArtefactError, match="can't be made: Not a directory"):
        work(recipe, tmp_path / "file" / "out")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("work", [runs, evaluates])
def test_an_output_in_use_is_told_at_once(
    recipe_of: Any, tiny_directory: Path, tmp_path: Path, no_reading: Any, work: Any
) -> None:
    (tmp_path / "out").mkdir()
    with directory_lock(tmp_path / "out"), pytest.raises(ArtefactError, match="in use"):
        work(recipe_of(tiny_directory), tmp_path / "out")


def test_work_in_use_is_told_at_once(recipe_of: Any, tiny_directory: Path, tmp_path: Path, no_reading: Any) -> None:
    folder = "scores.parquet.work"
    (tmp_path / folder).mkdir()
    recipe = recipe_of(tiny_directory)
    with directory_lock(tmp_path / folder), pytest.raises(ArtefactError, match="in use"):
        scores(recipe, tmp_path)


def gone(directory: Path) -> None:
    shutil.rmtree(directory)


def pickled(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def torn(directory: Path) -> None:
    data = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(data[: len(data) // 2])


def lacks_a_shard(directory: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def without_tokenizer(directory: Path) -> None:
    for path in directory.glob("*token*"):
        path.unlink()


def of_no_family(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "nonesuch"}')


FAULTS = {
    gone: "no such directory",
    pickled: r"pickled weights \(pytorch_model.bin\)",
    torn: r"model\.safetensors: can't be read",
    lacks_a_shard: r"names model-00002\.safetensors, which is missing",
    without_tokenizer: "can't be loaded",
    of_no_family: "nonesuch",
}


@pytest.mark.parametrize(
    ("work", "fault"), [*((runs, fault) for fault in FAULTS), (scores, torn), (influences, torn), (evaluates, torn)]
)
def test_a_model_that_cant_be_loaded_is_told_before_anything_is_read(
    recipe_of: Any, tiny_directory: Path, tmp_path: Path, no_reading: Any, work: Any, fault: Any
) -> None:
    model = shutil.copytree(tiny_directory, tmp_path / "model")
    fault(model)
    recipe = recipe_of(model)
    with pytest.raises(ScoringError, match=FAULTS[fault]):
        work(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if work is runs:
        with pytest.raises(ScoringError, match=FAULTS[fault]):
            dry_run(recipe)


def test_an_adapter_that_is_none_is_told_before_anything_is_read(
    recipe_of: Any, tiny_directory: Path, tmp_path: Path, no_reading: Any
) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ScoringError, match=r"adapter_config\.json: peft_type is None; only LORA"):
        run(recipe_of(tiny_directory, f"calibration.adapter={tmp_path / 'adapter'}"), tmp_path / "out")
    with pytest.raises(ScoringError, match=r"adapter_config\.json: peft_type is None; only LORA"):
        evaluate(str(tiny_directory), EvaluationRequest(), adapters=[tmp_path / "adapter"], output_dir=tmp_path / "out")


def test_scores_made_elsewhere_are_opened_before_anything_is_read(
    recipe_of: Any, tmp_path: Path, no_reading: Any
) -> None:
    (tmp_path / "scores.jsonl").write_text("{")
    for missing in ("scores.jsonl", "nowhere.parquet"):
        for work in (lambda r, s: run(r, tmp_path / "out", scores=s), lambda r, s: dry_run(r, scores=s)):
            with pytest.raises(InputError, match=missing):
                work(recipe_of(), tmp_path / missing)
    assert not (tmp_path / "out").exists()


def test_a_selection_needs_a_place_before_it_reads(recipe_of: Any, tmp_path: Path, no_reading: Any) -> None:
    allocation = tmp_path / "allocation.json"
    run_dir = tmp_path / "file" / "run"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"allocation\.json"):
        select(recipe_of(), allocation, run_dir)


def test_training_asks_for_its_place_before_a_model_is_loaded(
    recipe_of: Any, tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(recipe_of(tiny_directory), tmp_path / "run")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr("calibudget.lm.loading.load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    with pytest.raises(ArtefactError, match="can't be made"):
        train(tmp_path / "run", output_dir=tmp_path / "file" / "adapter")
    with directory_lock(tmp_path / "run"), pytest.raises(ArtefactError, match="in use"):
        train(tmp_path / "run", ["device=cpu"])

"""Runs that share what they read and load leave the bytes that they leave alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.progress import silent
from calibudget.pipeline.run import run
from calibudget.pipeline.shared_resources import Shared, read_sources
from calibudget.recipe.load import load_recipe
from tests.conftest import bytes_in


@pytest.mark.slow
def test_sources_are_read_once_for_one_split_and_anew_for_another(
    make_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibudget.pipeline import prepare

    reads = []
    whole, opened = prepare.read_source, prepare.open_sources  # type: ignore[attr-defined]

    def read(spec: Any, *rest: Any, **more: Any) -> Any:
        reads.append(spec.label)
        return whole(spec, *rest, **more)

    def open_all(specs: Any, **more: Any) -> Any:
        reads.extend(spec.label for spec in specs)
        return opened(specs, **more)

    monkeypatch.setattr(prepare, "read_source", read)
    monkeypatch.setattr(prepare, "open_sources", open_all)
    shared = Shared()
    path = make_recipe()
    for number, changes in enumerate((["policy=calibudget"], ["policy=equal"], ["policy=need", "budget=20"])):
        run(load_recipe(path, changes), tmp_path / f"shared-{number}", shared=shared)
        assert len(reads) == 3
    run(load_recipe(path, ["split_seed=7"]), tmp_path / "other", shared=shared)
    assert len(reads) == 6
    for number, changes in enumerate((["policy=calibudget"], ["policy=equal"], ["policy=need", "budget=20"])):
        run(load_recipe(path, changes), tmp_path / f"alone-{number}")
        assert bytes_in(tmp_path / f"alone-{number}") == bytes_in(tmp_path / f"shared-{number}")
    run(load_recipe(path, ["split_seed=7"]), tmp_path / "other-alone")
    assert bytes_in(tmp_path / "other-alone") == bytes_in(tmp_path / "other")


def test_what_a_layout_reads_is_not_shared_with_another(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe()
    turns = [{"role": role, "content": "the correct answer is true"} for role in ("system", "user", "assistant")]
    with (tmp_path / "data/boolq.jsonl").open("a") as rows:
        rows.write(json.dumps({"messages": turns}) + "\n")
    shared, sizes = Shared(), []
    for layout in ("completion", "turns"):
        recipe = load_recipe(path, [f"output.layout={layout}", "on_error=skip"])
        alone, beside = (read_sources(recipe, each, progress=silent).pool_sizes for each in (None, shared))
        assert alone == beside
        sizes.append(sum(alone.values()))
    assert sizes[1] == sizes[0] + 1


def test_a_copy_of_a_recipe_reads_its_own_sources(make_recipe: Any) -> None:
    recipe = load_recipe(make_recipe())
    before = recipe.specs
    copy = recipe.model_copy(update={"on_error": "skip"})
    assert {spec.on_error for spec in before.values()} == {"refuse"}
    assert {spec.on_error for spec in copy.specs.values()} == {"skip"}


@pytest.mark.slow
def test_a_model_is_loaded_once_whatever_device_and_precision_auto_stands_for(tiny_directory: Path) -> None:
    from calibudget.lm.loading import placement

    shared = Shared()
    device, dtype = placement("auto", "auto")
    first = shared.model(str(tiny_directory))
    assert shared.model(str(tiny_directory), device=device, dtype=dtype) is first  # type: ignore[arg-type]
    other = shared.model(str(tiny_directory), device="cpu", dtype="bfloat16")
    assert other is not first
    assert other.identity["dtype"] == "bfloat16"

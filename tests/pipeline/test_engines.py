"""A run directory is the same bytes wherever its scores were made: here, by workers, elsewhere, on a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.pipeline.score import score
from calibudget.recipe.load import load_recipe, resolved_yaml
from calibudget.scoring.local import LocalScorer
from tests.conftest import bytes_in


@pytest.fixture
def recipe_with(make_recipe: Any, tiny_directory: Path) -> Any:
    """A function from overrides to the recipe, with the tiny model."""
    path = make_recipe()
    own = ["engine=local", f"model={json.dumps(str(tiny_directory))}", "calibration.device=cpu"]
    own += ["calibration.batch_tokens=400", "calibration.max_new_tokens=8", "cache=false"]
    return lambda *overrides: load_recipe(path, [*own, *overrides])


def stop(stage: Any, done: Any, total: Any) -> None:
    if stage == "scoring" and done:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_another_machine_or_other_workers_halfway_give_the_same_directory(recipe_with: Any, tmp_path: Path) -> None:
    run(recipe_with(), tmp_path / "whole")
    expected = bytes_in(tmp_path / "whole")
    assert len(expected) == 10

    score(recipe_with(), output=tmp_path / "elsewhere.parquet")
    run(recipe_with(), tmp_path / "given", scores=tmp_path / "elsewhere.parquet")
    assert (tmp_path / "elsewhere.parquet").read_bytes() == expected["scores.parquet"]
    assert bytes_in(tmp_path / "given") == expected

    with pytest.raises(KeyboardInterrupt):
        run(recipe_with(), tmp_path / "resumed", progress=stop)
    run(recipe_with("workers=2"), tmp_path / "resumed", resume=True)
    assert bytes_in(tmp_path / "resumed") == expected


@pytest.mark.slow
@pytest.mark.usefixtures("ray_leftovers")
def test_a_cluster_gives_the_same_directory(recipe_with: Any, tmp_path: Path) -> None:
    run(recipe_with(), tmp_path / "local")
    run(recipe_with("engine=ray", "workers=2"), tmp_path / "ray")
    assert bytes_in(tmp_path / "ray") == bytes_in(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_leftovers")
def test_whoever_reads_and_whatever_was_kept_the_directory_is_the_same(
    make_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_recipe()
    run(load_recipe(path, ["cache=false"]), tmp_path / "plain")
    expected = bytes_in(tmp_path / "plain")
    monkeypatch.setattr("calibudget.sources.cache_files.SMALL", 0)
    kept = f"cache={json.dumps(str(tmp_path / 'kept'))}"
    for name, own in (("workers", ["workers=3", "cache=false"]), ("cold", [kept]), ("warm", [kept, "workers=2"])):
        run(load_recipe(path, own), tmp_path / name)
        assert bytes_in(tmp_path / name) == expected
    assert list((tmp_path / "kept").glob("*.identities"))


@pytest.mark.slow
def test_another_budget_asks_the_model_nothing_again_and_other_settings_do(
    recipe_with: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = f"cache={json.dumps(str(tmp_path / 'kept'))}"
    run(recipe_with(kept), tmp_path / "first")
    run(recipe_with("budget=25"), tmp_path / "uncached")
    expected = bytes_in(tmp_path / "uncached")
    asked: list[int] = []
    measured = LocalScorer.measure

    def measure(self: LocalScorer, items: Any) -> Any:
        asked.append(len(items))
        return measured(self, items)

    monkeypatch.setattr(LocalScorer, "measure", measure)
    run(recipe_with(kept, "budget=25"), tmp_path / "found")
    assert (asked, bytes_in(tmp_path / "found")) == ([], expected)

    for number, other in enumerate(("calibration.max_new_tokens=7", "split_seed=7", "template=chat")):
        run(recipe_with(kept, other), tmp_path / f"other-{number}")
        assert asked.pop()
        asked.clear()

    for file in (tmp_path / "kept").glob("*.measurements"):  # one digit of an NLL
        file.write_bytes(file.read_bytes().replace(b'"nll":', b'"nll":1', 1))
    run(recipe_with(kept, "budget=25"), tmp_path / "damaged")
    assert asked
    assert bytes_in(tmp_path / "damaged") == expected


def test_evidence_says_what_scores_and_not_where(make_recipe: Any) -> None:
    path = make_recipe()
    own = ["model=embedded"]
    here = resolved_yaml(load_recipe(path, [*own, "engine=local"]))
    there = resolved_yaml(load_recipe(path, [*own, "engine=ray", "workers=8", "address=auto"]))
    assert here == there
    assert b"engine: local" in here
    assert b"engine: fake" in resolved_yaml(load_recipe(path, ["workers=4"]))
    assert b"workers: 1\n" in resolved_yaml(load_recipe(path))
    assert load_recipe(path).reading.workers == os.cpu_count()

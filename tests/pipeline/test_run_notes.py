"""Sources whose quota sits on a rounding boundary are named where batches were split for want of memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.pipeline.allocate import plan_recipe
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.run import run
from calibudget.pipeline.run_notes import near_boundary
from calibudget.recipe.load import load_recipe
from calibudget.store.scores import read_scores
from tests.conftest import statistics_of

SIZES = {"a": 400, "b": 300, "c": 500}


@pytest.fixture
def recipe_of(tmp_path: Path) -> Any:
    """A function from a budget to a recipe of three sources under the paper's policy."""

    def make(budget: Any, policy: str = "calibudget") -> Any:
        sources = "".join(f"  {label}: {{path: none.jsonl, answer: none}}\n" for label in SIZES)
        text = f"engine: fake\nbudget: {budget}\nfloor: 3\npolicy: {policy}\nerror: nll\nsources:\n{sources}"
        (tmp_path / "recipe.yaml").write_text(text)
        return load_recipe(tmp_path / "recipe.yaml")

    return make


@pytest.fixture(scope="module")
def pools() -> Any:
    queues = {label: [str(n) for n in range(size)] for label, size in SIZES.items()}
    return Pools(queues=queues, tokens=None, selection_seed=42, max_repeats=1)


def measured(**means: float) -> Any:
    rows = {name: {"pool_size": SIZES[name], "mean_error": own, "bootstrap_sd": 0.05} for name, own in means.items()}
    return replace(statistics_of(rows, error="nll"), model={"dtype": "float32"})


def tied(recipe: Any, pools: Any) -> Any:
    """Means at which `a` and `c` stand in a row for the last unit: the mean of `a` at which it passes."""
    low, high = 1.0, 3.0
    first = plan_recipe(recipe, pools, measured(a=low, b=2.0, c=2.0)).quotas
    while high - low > 1e-9:
        middle = (low + high) / 2
        quotas = plan_recipe(recipe, pools, measured(a=middle, b=2.0, c=2.0)).quotas
        low, high = (middle, high) if quotas["a"] == first["a"] else (low, middle)
    return measured(a=low, b=2.0, c=2.0)


def test_sources_on_a_boundary_are_named_and_others_not(recipe_of: Any, pools: Any) -> None:
    recipe = recipe_of(101)
    close = tied(recipe, pools)
    plan = plan_recipe(recipe, pools, close)
    named = near_boundary(recipe, pools, close, plan, 1e-5)
    assert "a" in named
    assert len(named) == 2
    far = replace(close, sources=close.sources | {"a": replace(close.sources["a"], mean_error=2.37)})
    assert near_boundary(recipe, pools, far, plan_recipe(recipe, pools, far), 1e-5) == ()


@pytest.mark.parametrize("policy", ["calibudget", "need", "need-availability"])
def test_quotas_of_sources_that_are_not_named_stand(recipe_of: Any, pools: Any, policy: str) -> None:
    """No random change within the tolerance moves them; some move others, else this would show nothing."""
    recipe, random, moved = recipe_of(400, policy), np.random.default_rng(7), 0
    for _ in range(12):
        statistics = measured(**{label: float(random.uniform(0.5, 4.0)) for label in SIZES})
        plan = plan_recipe(recipe, pools, statistics)
        named = near_boundary(recipe, pools, statistics, plan, 3e-3)
        for _ in range(12):
            sources = {
                label: replace(
                    row,
                    mean_error=row.mean_error + float(random.choice((-3e-3, 3e-3))),
                    bootstrap_sd=row.bootstrap_sd + float(random.uniform(-3e-3, 3e-3)),
                )
                for label, row in statistics.sources.items()
            }
            quotas = plan_recipe(recipe, pools, replace(statistics, sources=sources)).quotas
            changed = {label for label in SIZES if quotas[label] != plan.quotas[label]}
            moved += len(changed)
            assert changed <= set(named)
    assert moved


@pytest.mark.slow
def test_split_batches_give_equal_quotas_and_say_so(
    make_recipe: Any, tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that takes two records at once, against one that takes all: float32 NLLs agree to 1e-5."""
    import torch

    from calibudget.scoring import local

    forward = local.teacher_forced  # type: ignore[attr-defined]

    def small_memory(model: Any, examples: Any, **settings: Any) -> Any:
        if len(examples) > 2:
            raise torch.OutOfMemoryError("no room")
        return forward(model, examples, **settings)

    options = ["engine=local", f"model={json.dumps(str(tiny_directory))}", "calibration.device=cpu", "cache=false"]
    recipe = load_recipe(make_recipe(), [*options, "calibration.max_new_tokens=8"])
    whole = run(recipe, tmp_path / "whole")
    monkeypatch.setattr(local, "teacher_forced", small_memory)
    split = run(recipe, tmp_path / "split")
    nlls = [
        [score.nll for score in read_scores(tmp_path / name / "scores.parquet").scores] for name in ("whole", "split")
    ]
    assert nlls[1] == pytest.approx(nlls[0], abs=1e-5)
    assert split.plan.quotas == whole.plan.quotas
    assert not any("halved" in note for note in whole.notes)
    assert any("which moved NLLs by about 1e-05 where it was measured" in note for note in split.notes)
    provenance = read_scores(tmp_path / "split" / "scores.parquet").provenance
    assert provenance["batch_splits"] == 3  # type: ignore[index]

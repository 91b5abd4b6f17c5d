"""Groups, and floors and caps as shares, from the recipe to the evidence, over several rounds too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.artefacts import ALLOCATION

# 40 examples a source, no calibration: boolq and piqa are sets of questions, gsm8k is what would be the companion set.
RECIPE = """
engine: fake
calibration: none
policy: equal
budget: 60
sources:
  boolq: {path: boolq.jsonl, answer: none}
  gsm8k: {path: gsm8k.jsonl, answer: none}
  piqa: {path: piqa.jsonl, answer: none}
"""
GROUPS = """
groups:
  mathematics: {sources: [gsm8k], cap: 25% of budget}
  questions: {sources: [boolq, piqa]}
"""


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def write(more: str = "") -> Any:
        for label in ("boolq", "gsm8k", "piqa"):
            rows = ({"prompt": f"{label} {n}?", "completion": str(n)} for n in range(40))
            (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE + more)
        return tmp_path / "recipe.yaml"

    return write


def test_the_companion_s_data_and_the_sources_are_budgeted_jointly(make: Any, tmp_path: Path) -> None:
    result = run(load_recipe(make(GROUPS)), tmp_path / "run")
    assert result.plan.quotas == {"boolq": 23, "gsm8k": 15, "piqa": 22}
    assert result.plan.groups == {
        "mathematics": {"cap": 15, "floor": 0, "groups": {}, "sources": ["gsm8k"]},
        "questions": {"cap": None, "floor": 0, "groups": {}, "sources": ["boolq", "piqa"]},
    }
    assert verify(tmp_path / "run", data_dir=tmp_path).differences == ()
    without = run(load_recipe(make()), tmp_path / "without")
    assert without.plan.quotas == {"boolq": 20, "gsm8k": 20, "piqa": 20}


def test_shares_say_of_what_and_become_whole_units(make: Any, tmp_path: Path) -> None:
    more = "floor: {gsm8k: 55% of pool, default: 10% of budget}\ncaps: {piqa: 20% of budget, boolq: 17}\n"
    run(load_recipe(make(more), ["policy=floor-sqrt"]), tmp_path / "run")
    plan = ALLOCATION.read(tmp_path / "run" / "allocation.json")
    assert (plan.floor, plan.floors, plan.caps) == (6, {"gsm8k": 22}, {"boolq": 17, "piqa": 12})
    assert {label: row.floor_quota for label, row in plan.sources.items()} == {"boolq": 6, "gsm8k": 22, "piqa": 6}
    assert verify(tmp_path / "run").differences == ()


@pytest.mark.parametrize("unit", ["budget=30", "budget={tokens: 120}"])
def test_bounds_of_groups_and_shares_count_all_rounds(make: Any, tmp_path: Path, unit: str) -> None:
    path = make(GROUPS + "floor: 5% of budget\n")
    run(load_recipe(path, [unit, "policy=floor-sqrt"]), tmp_path / "first")
    first = ALLOCATION.read(tmp_path / "first" / "allocation.json")
    run(load_recipe(path, [unit, "policy=floor-sqrt", f"rounds.previous={tmp_path / 'first'}"]), tmp_path / "second")
    second = ALLOCATION.read(tmp_path / "second" / "allocation.json")
    assert verify(tmp_path / "second", data_dir=tmp_path).differences == ()
    scale = first.budget // 30
    # A quarter of both budgets is the group's cap, and the first round has spent its quarter.
    assert first.quotas["gsm8k"] <= first.groups["mathematics"]["cap"] == 30 * scale // 4  # type: ignore[index]
    spent = json.loads((tmp_path / "second" / "rounds.json").read_text())["rounds"][0]["sources"]["gsm8k"]["units"]
    assert second.groups["mathematics"]["cap"] == 60 * scale // 4 - spent  # type: ignore[index]
    assert second.quotas["gsm8k"] <= second.groups["mathematics"]["cap"]  # type: ignore[index]
    assert set(second.floors.values()) == {0}  # type: ignore[union-attr]


def test_a_warm_up_spends_the_sources_own_floors(make: Any, tmp_path: Path) -> None:
    path = make(GROUPS.replace("cap: 25% of budget", "floor: 30") + "floor: 8\n")
    warm_up = run(load_recipe(path, ["policy=floor-sqrt", "groups=null", "budget=24"]), tmp_path / "warm-up")
    assert set(warm_up.plan.quotas.values()) == {8}
    options = ["policy=floor-sqrt", "budget=36", f"rounds.previous={tmp_path / 'warm-up'}"]
    rest = run(load_recipe(path, options), tmp_path / "rest")
    assert 8 + rest.plan.quotas["gsm8k"] >= 30
    assert verify(tmp_path / "rest").differences == ()

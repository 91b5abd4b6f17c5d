"""Repeated exposure: pools are multiplied, repeats come last and are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import AllocationError
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.manifest import MANIFEST
from tests.pipeline.conftest import rows_of


def test_a_budget_above_the_pools_is_met_by_repeats_that_say_so(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe(policy="equal", order="source")
    with pytest.raises(AllocationError, match="max_repeats"):
        run(load_recipe(path, ["budget=100"]), tmp_path / "refused")
    result = run(load_recipe(path, ["budget=100", "max_repeats=3"]), tmp_path / "run")
    # 25 and 35 candidates, three times each; 50 and 50 of them.
    assert {label: row.pool_size for label, row in result.plan.sources.items()} == {"boolq": 75, "piqa": 105}
    assert result.plan.quotas == {"boolq": 50, "piqa": 50}
    ids = [row["record_id"] for row in rows_of(tmp_path / "run") if row["source"] == "boolq"]
    assert ids[25:] == [f"{one}#r2" for one in ids[:25]]
    piqa = [row["record_id"] for row in rows_of(tmp_path / "run") if row["source"] == "piqa"]
    assert piqa[35:] == [f"{one}#r2" for one in piqa[:15]]
    texts = {row["record_id"]: (row["prompt"], row["completion"]) for row in rows_of(tmp_path / "run")}
    assert all(texts[f"{one}#r2"] == texts[one] for one in ids[:25])
    assert "boolq: 25 rows of repeated examples" in result.notes
    assert MANIFEST.read(tmp_path / "run" / "manifest.json").sources["boolq"].pool_size == 25
    assert verify(tmp_path / "run", data_dir=tmp_path / "data").differences == ()


@pytest.mark.parametrize(
    ("options", "budget", "count"),
    [
        ({"policy": "pooled"}, "120", 120),
        ({"duplicates": "keep", "order": "source"}, "120", 120),
        ({"policy": "proportional"}, "{tokens: 900}", 100),
    ],
)
def test_runs_with_repeats_hold(make_recipe: Any, tmp_path: Path, options: Any, budget: str, count: int) -> None:
    result = run(load_recipe(make_recipe(**options), [f"budget={budget}", "max_repeats=2"]), tmp_path / "run")
    assert result.count == count
    assert result.tokens is None or 891 < result.tokens <= 900
    assert verify(tmp_path / "run", data_dir=tmp_path / "data").differences == ()

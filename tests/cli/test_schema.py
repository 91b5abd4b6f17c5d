"""What `calibudget schema` prints takes what CaliBudget reads and writes, and refuses what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from calibudget.cli.schema import schemas

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
RECIPES = [
    *GOLDEN.glob("kinds/*.yaml"),
    *ROOT.glob("examples/*.yaml"),
    ROOT / "examples/paper/recipe.yaml",
]
PROTOCOLS = [*ROOT.glob("examples/study/*.yaml"), *ROOT.glob("examples/paper/*.yaml")]
ARTEFACTS = ("manifest", "statistics", "allocation", "selection")
SCHEMAS = schemas()


def faults(name: str, value: Any) -> list[str]:
    """What a schema finds wrong with a value."""
    return [error.json_path for error in Draft202012Validator(SCHEMAS[name]).iter_errors(value)]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_each_is_a_schema_and_is_printed(calibudget: Any, name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert json.loads(calibudget("schema", name).out) == SCHEMAS[name]
    assert name in calibudget("schema").out.split()


def test_recipes_and_protocols_are_taken() -> None:
    protocols = [path for path in PROTOCOLS if "points" in loaded(path)]
    recipes = [path for path in RECIPES if "sources" in loaded(path)]
    assert len(protocols) > 3
    assert len(recipes) > 3
    for path in protocols:
        assert faults("protocol", loaded(path)) == [], path
    for path in recipes:
        assert faults("recipe", loaded(path)) == [], path


@pytest.mark.parametrize("name", ARTEFACTS)
def test_artefacts_are_taken_and_broken_ones_refused(name: str) -> None:
    value = json.loads((GOLDEN / "run-0.1" / f"{name}.json").read_text())
    assert faults(name, value) == []
    for field in value:
        lacking = {key: item for key, item in value.items() if key != field}
        other = {**value, field: -1.5}
        assert faults(name, other) != [], field
        assert faults(name, lacking) != [] or field == "quotas_sha256", field
    assert faults(name, {**value, "extra": 1}) == ["$"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"budget": "many"}, "$.budget"),
        ({"flor": 3}, "$"),
        ({"policy": 3}, "$.policy"),
        ({"selector": "best"}, "$.selector"),
        ({"sources": {"a": {"path": []}}}, "$.sources.a.path"),
        ({"hygiene": {"contamination": "delete"}}, "$.hygiene.contamination"),
    ],
)
def test_a_fault_of_a_recipe_is_placed(change: dict[str, Any], place: str) -> None:
    recipe = {"budget": 3, "floor": "10% of budget", "sources": {"a": {"path": "a.jsonl", "answer": "none"}}}
    assert faults("recipe", recipe) == []
    assert place in faults("recipe", copy.deepcopy(recipe) | change)

"""Weights that others fitted, in the forms of the files that they write."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from calibudget.errors import RecipeError
from calibudget.recipe.load import load_recipe, resolved_fields
from calibudget.recipe.mixture_weights import read_weights

RECIPE = """\
engine: fake
calibration: none
budget: 100
policy: weights
weights: mixture/found
sources: {the_pile_arxiv: {path: a.jsonl}, dm_mathematics: {path: b.jsonl}}
"""
#: RegMix's training configuration, with its exponents and what else stands there.
REGMIX = """\
train:
  train_the_pile_arxiv: 0.0012046169821426883
  train_dm_mathematics: 2.9166170357771267e-06
valid:
  valid_the_pile_pile_cc: 1.0
model_name: tinyllama_1_1b
total_devices: 32
"""
WEIGHTS = {"the_pile_arxiv": 0.0012046169821426883, "dm_mathematics": 2.9166170357771267e-06}
FORMS = {
    "RegMix": REGMIX,
    "olmix": json.dumps([{"domain": label, "weight": weight} for label, weight in WEIGHTS.items()]),
    "DoReMi": json.dumps(WEIGHTS, indent=2),
    "DoReMi's configuration": json.dumps({"train_domain_weights": WEIGHTS, "eval_domain_weights": {"c4": 1.0}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_recipe_takes_the_weights_of_a_file(tmp_path: Path, form: str) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "mixture").mkdir()
    (tmp_path / "mixture" / "found").write_text(FORMS[form])
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.weights == WEIGHTS
    assert resolved_fields(recipe)["weights"] == WEIGHTS  # evidence needs no file


def test_on_the_command_line_the_file_starts_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.json").write_text(FORMS["DoReMi"])
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_recipe(tmp_path / "recipe.yaml", ["weights=w.json"]).weights == WEIGHTS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            REGMIX.replace("2.9166170357771267e-06", "-0.1"),
            "found:3: the weight of 'dm_mathematics' must be a number of",
        ),
        (
            REGMIX.replace("2.9166170357771267e-06", ".nan"),
            "found:3: the weight of 'dm_mathematics' must be a number of",
        ),
        (json.dumps([{"domain": "dm_mathematics", "weight": math.nan}]), "of 0 or more, not 'NaN'"),
        (json.dumps({"dm_mathematics": math.inf}), "of 0 or more, not 'Infinity'"),
        (json.dumps({"dm_mathematics": True}), "of 0 or more, not True"),
        (REGMIX + "  train_the_pile_arxiv: 1\n", "not valid YAML"),
        (REGMIX.replace("train_dm", "train_the_pile_arxiv: 1\n  train_dm"), "duplicate key 'train_the_pile_arxiv'"),
        (REGMIX.replace("train_dm_mathematics", "the_pile_arxiv"), "the weight of 'the_pile_arxiv' stands there twice"),
        (json.dumps([{"domain": "a", "weight": 1}] * 2), "the weight of 'a' stands there twice"),
        (json.dumps([{"domain": "a", "share": 1}]), "found:1: must be {domain, weight}, not {'domain': 'a', 'share'"),
        (json.dumps(WEIGHTS | {"c4": 0.5}), "`weights` names 'c4', which is not a source"),
        (json.dumps({"the_pile_arxiv": 1.0}), "`weights` lacks the source 'dm_mathematics'; 0 leaves a source out"),
        ("0.5", "must be a mapping of names to values"),
        (None, "weights: found: can't be read: No such file"),
    ],
)
def test_faults_are_refused_by_name(tmp_path: Path, text: str | None, said: str) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("mixture/", ""))
    if text is not None:
        (tmp_path / "found").write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "recipe.yaml")
    assert said in str(caught.value).replace(f"{tmp_path}/", "")


def test_a_source_called_train_is_a_label_like_others(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"train": 1, "train_a": 0.5}')
    assert read_weights(tmp_path / "w.json") == {"train": 1, "train_a": 0.5}

"""Models and tokenizers as people bring them: tokens added without an embedding, templates that refuse some turns."""

import json

import pytest

from calibudget.errors import ScoringError
from calibudget.pipeline import run
from calibudget.recipe import load_recipe

RECIPE = """
model: {model}
policy: equal
budget: 4
calibration: {{per_source: 4, max_new_tokens: 4}}
template: {template}
error: nll
sources:
  a: {{path: a.jsonl, answer: none}}
"""


@pytest.fixture
def recipe_of(tmp_path, model_of):
    """Writes rows, a tiny model with some tokenizer, and a recipe for both; returns the recipe's path."""

    def write(rows, tokenizer, template="alpaca"):
        for part in (model_of(num_key_value_heads=2), tokenizer):
            part.save_pretrained(tmp_path / "model")
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE.format(model=tmp_path / "model", template=template))
        return tmp_path / "recipe.yaml"

    return write


def test_a_token_beyond_the_embedding_is_refused_before_anything_is_scored(recipe_of, tokenizer_with, tmp_path):
    tokenizer = tokenizer_with()
    tokenizer.add_tokens(["<extra_one>", "<extra_two>"])
    rows = [{"instruction": f"Say <extra_two> {i}", "output": f"ok <extra_two> {i}"} for i in range(12)]
    with pytest.raises(ScoringError, match=r"source a, record .*: its token '<extra_two>' has the id 321 .* 320 ids"):
        run(load_recipe(recipe_of(rows, tokenizer)), tmp_path / "out")

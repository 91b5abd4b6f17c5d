"""Models and tokenizers as people bring them: tokens added without an embedding, templates that refuse some turns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.pipeline.dry_run import dry_run
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.run import run
from calibudget.pipeline.train import train
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from tests.conftest import model_of, tokenizer_with

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
def recipe_of(tmp_path: Path) -> Any:
    """Writes rows, a tiny model with some tokenizer, and a recipe for both; returns the recipe's path."""

    def write(rows: Any, tokenizer: Any, template: str = "alpaca") -> Any:
        for part in (model_of(num_key_value_heads=2), tokenizer):
            part.save_pretrained(tmp_path / "model")
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE.format(model=tmp_path / "model", template=template))
        return tmp_path / "recipe.yaml"

    return write


def test_a_token_beyond_the_embedding_is_refused_before_anything_is_scored(
    recipe_of: Callable[..., Any], tmp_path: Path
) -> None:
    tokenizer = tokenizer_with()
    tokenizer.add_tokens(["<extra_one>", "<extra_two>"])
    rows = [{"instruction": f"Say <extra_two> {i}", "output": f"ok <extra_two> {i}"} for i in range(12)]
    with pytest.raises(
        ScoringError, match=r"source 'a': a\.jsonl:3, record .*: its token '<extra_two>' has the id 321 .* 320 ids"
    ):
        run(load_recipe(recipe_of(rows, tokenizer)), tmp_path / "out")


#: A template that takes no system turn, as Gemma's does.
NO_SYSTEM = (
    "{% for turn in messages %}{% if turn.role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}"
    "<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def turns_of(number: Any, *, system: bool = False) -> Any:
    first = [{"role": "system", "content": "Be brief."}] if system else []
    return {
        "messages": [
            *first,
            {"role": "user", "content": f"q{number}"},
            {"role": "assistant", "content": f"a{number}"},
        ]
    }


def test_a_record_that_the_template_refuses_is_told_by_the_run_not_by_train(
    recipe_of: Callable[..., Any], tmp_path: Path
) -> None:
    """Of 41 records 4 calibrate and 37 are drawn, so the one with a system turn is needed, as this or as that."""
    tokenizer, told = tokenizer_with(chat_template=NO_SYSTEM), []
    for number in range(3):
        rows = [turns_of(i, system=i == number) for i in range(41)]
        with pytest.raises(ScoringError, match=r"source 'a': a\.jsonl:\d+, record \w+: .*no system turns") as error:
            run(load_recipe(recipe_of(rows, tokenizer, "chat"), ["budget=37"]), tmp_path / f"refused-{number}")
        told.append(str(error.value))
        assert not list((tmp_path / f"refused-{number}").glob("train*"))
        unscored = load_recipe(recipe_of(rows, tokenizer, "chat"), ["budget=41", "calibration=none"])
        with pytest.raises(ScoringError, match=rf"a\.jsonl:{number + 1}[:,] .*take it out of the data"):
            run(unscored, tmp_path / f"unscored-{number}")
    assert all("take it out of the data, or say `on_error: skip`" in message for message in told)


def test_a_run_of_a_version_that_took_what_the_template_refuses_verifies(
    recipe_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record with a system turn is held out to be evaluated and taught to no model."""
    tokenizer, overrides = tokenizer_with(chat_template=NO_SYSTEM), ["calibration=none", "evaluation={per_source: 36}"]
    for number in range(6):
        rows = [turns_of(i, system=i == number) for i in range(41)]
        recipe = load_recipe(recipe_of(rows, tokenizer, "chat"), overrides)
        if any(len(one.prompt) == 2 for one in prepare(recipe, is_finished=True).splits["a"].evaluation):
            break
    with pytest.raises(ScoringError, match="no system turns"):
        run(recipe, tmp_path / "refused")
    with monkeypatch.context() as earlier:
        earlier.setattr("calibudget.pipeline.prepare.check_encodable", lambda *_: None)
        run(recipe, tmp_path / "out")
    assert verify(tmp_path / "out", data_dir=tmp_path).differences == ()


def test_what_no_template_takes_is_told_or_skipped_without_a_model_too(tmp_path: Path) -> None:
    use = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    rows = [turns_of(number) | (use if number == 2 else {}) for number in range(6)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(
        "{policy: equal, budget: 5, calibration: none, sources: {a: {path: a.jsonl}}}"
    )
    with pytest.raises(ScoringError, match=r"a\.jsonl:3, .*knows no tools; choose template: chat; take it out"):
        run(load_recipe(tmp_path / "recipe.yaml", ["budget=6"]), tmp_path / "refused")
    result = run(load_recipe(tmp_path / "recipe.yaml", ["on_error=skip"]), tmp_path / "skipped")
    assert result.count == 5
    assert result.notes[0].startswith("a: 1 row skipped: the alpaca template knows no tools")
    assert verify(result.directory, data_dir=tmp_path).differences == ()


def test_what_a_template_refuses_of_a_calibration_record_is_told_before_anything_is_scored(
    recipe_of: Callable[..., Any],
) -> None:
    rows = [turns_of(i, system=True) for i in range(12)]
    recipe = recipe_of(rows, tokenizer_with(chat_template=NO_SYSTEM), "chat")
    with pytest.raises(ScoringError, match=r"a\.jsonl:\d+, .*no system turns"):
        dry_run(load_recipe(recipe))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_on_error_skip_leaves_such_a_record_out_before_the_draw(
    recipe_of: Callable[..., Any], tmp_path: Path, number: int
) -> None:
    rows = [turns_of(i, system=i == number) for i in range(41)]
    recipe = recipe_of(rows, tokenizer_with(chat_template=NO_SYSTEM), "chat")
    result = run(load_recipe(recipe, ["budget=36", "on_error=skip"]), tmp_path / "out")
    assert any(re.match("a: 1 row skipped: .*no system turns", note) for note in result.notes)
    assert result.plan.sources["a"].pool_size == 36
    train(result.directory, ("rank=2", "scaling=4", "batch_size=8", "epochs=1", "max_length=256", "device=cpu"))
    assert verify(result.directory, data_dir=tmp_path).differences == ()


def test_the_companion_set_is_encoded_too(recipe_of: Callable[..., Any], tmp_path: Path) -> None:
    tokenizer = tokenizer_with(chat_template=NO_SYSTEM)
    recipe = recipe_of([turns_of(number) for number in range(12)], tokenizer, "chat")
    rows = [turns_of(100), turns_of(101, system=True)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe.write_text(recipe.read_text() + "companion: {path: c.jsonl, answer: none}\n")
    with pytest.raises(ScoringError, match="no system turns"):
        run(load_recipe(recipe), tmp_path / "refused")
    result = run(load_recipe(recipe, ["on_error=skip"]), tmp_path / "skipped")
    assert result.companion_count == 1
    assert verify(result.directory, data_dir=tmp_path).differences == ()

"""Calibration records that leave as text and come back as scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.pipeline.run import run
from calibudget.pipeline.score import export_calibration, score
from calibudget.recipe.load import load_recipe
from tests.conftest import fruit_recipe, write_rows


@pytest.fixture
def recipe(tmp_path: Path, tiny_directory: Path) -> Any:
    return load_recipe(fruit_recipe(tmp_path, count=12, checked=True, model=str(tiny_directory), budget=8, floor=2))


def test_the_texts_that_leave_are_those_that_are_scored(tmp_path: Path, recipe: Any) -> None:
    """An independent forward over the exported texts gives the NLLs of a run that scored for itself."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert export_calibration(recipe, tmp_path / "out.jsonl") == 8
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    model, tokenizer = (one.from_pretrained(recipe.model) for one in (AutoModelForCausalLM, AutoTokenizer))
    answered = []
    for number, line in enumerate(lines):
        prompt, response = (
            tokenizer(line[name], add_special_tokens=False).input_ids for name in ("prompt", "completion")
        )
        assert len(response) == line["response_tokens"]
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        total = sum(logprobs[len(prompt) - 1 + place, token].item() for place, token in enumerate(response))
        text = f"the correct answer is {line['answer'] if number % 2 else 'neither'}"
        answered.append(line | {"logprob": total, "text": text})
    run(recipe, tmp_path / "own")
    run(recipe, tmp_path / "elsewhere", scores=write_rows(tmp_path / "back.jsonl", answered))
    from calibudget.store.scores import read_scores

    own, elsewhere = (read_scores(tmp_path / name / "scores.parquet").scores for name in ("own", "elsewhere"))
    assert [(one.source, one.record_id) for one in own] == [(one.source, one.record_id) for one in elsewhere]
    assert [one.nll for one in elsewhere] == pytest.approx([one.nll for one in own], abs=1e-5)
    assert [one.correct for one in elsewhere] == [False, True] * 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[1:], "lacks 1 of 8 calibration records"),
        (lambda lines: [*lines, lines[0] | {"record_id": "f" * 64}], "scores 1 record outside"),
        (lambda lines: [*lines, lines[0]], "was scored at back.jsonl:1 already"),
        (
            lambda lines: [{**lines[0], "response_tokens": 3}, *lines[1:]],
            "response_tokens: is 3, and the recipe's model",
        ),
        (lambda lines: [{**lines[0], "text": None}, *lines[1:]], ":1: correct: must be true or false"),
    ],
)
def test_what_is_not_of_these_records_is_refused_by_name(tmp_path: Path, recipe: Any, change: Any, said: str) -> None:
    export_calibration(recipe, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    whole = [line | {"logprob": -3.5, "text": "answer0"} for line in lines]
    back = write_rows(tmp_path / "back.jsonl", change(whole))
    with pytest.raises(ArtefactError) as caught:
        run(recipe, tmp_path / "run", scores=back)
    assert said in str(caught.value)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_an_export_overwrites_nothing(tmp_path: Path, recipe: Any) -> None:
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(ArtefactError, match="exists already"):
        export_calibration(recipe, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"
    for output in (".", "/", tmp_path):
        for make in (score, export_calibration):
            with pytest.raises(ArtefactError, match="exists already"):
                make(recipe, output=output)

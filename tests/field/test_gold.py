"""Gold answers as data sets bring them: after reasoning, or in a field that holds more than one number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe
from calibudget.store.scores import read_scores

RECIPE = """
policy: equal
budget: 2
calibration: {per_source: 8}
engine: fake
model: embedded
on_error: %s
sources:
  a: {path: a.jsonl, answer: %s}
"""
LETTERS = "{kind: choice, labels: [A, B, C, D]}"


@pytest.fixture
def run_with(tmp_path: Path) -> Any:
    def go(answer: Any, rows: Any, on_error: str = "refuse") -> Any:
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE % (on_error, answer))
        return run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "out")

    return go


def taught(text: Any) -> Any:
    return [{"instruction": f"Pick one {i}", "output": text} for i in range(10)]


@pytest.mark.parametrize(
    ("answer", "text", "gold"),
    [
        (LETTERS, "<think>\nThe answer is A at first glance.\n</think>\n\nThe answer is B.", "B"),
        ("{kind: number}", "<think>\nThe answer is 3 at first glance.\n</think>\n\nThe answer is 4.", "4"),
        ("{kind: math}", "<think>\n\\boxed{3} at first glance.\n</think>\n\n\\boxed{4}", "4"),
    ],
)
def test_the_gold_answer_is_what_stands_after_the_reasoning(
    run_with: Any, tmp_path: Path, answer: Any, text: str, gold: str
) -> None:
    run_with(answer, taught(text))
    scores = read_scores(tmp_path / "out" / "scores.parquet")
    right = [score.prediction for score in scores.scores if score.correct]
    assert right == [gold] * len(right)
    assert right  # the fake engine answers some rightly


def test_reasoning_that_isnt_closed_states_no_answer(run_with: Any) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl.*1.*states no choice answer"):
        run_with(LETTERS, taught("<think>\nThe answer is A at first glance."))


def test_a_gold_field_with_more_than_one_number_is_refused_by_row(run_with: Any) -> None:
    rows = [
        {"instruction": f"When does train {i} leave?", "output": "The answer is 9", "time": time}
        for i, time in enumerate(["9", "9", "9:30", *map(str, range(10, 19))])
    ]
    with pytest.raises(DataError, match=r"a\.jsonl.*3.*'time' holds '9:30', which is not one number"):
        run_with("{kind: number, field: time}", rows)
    result = run_with("{kind: number, field: time}", rows, on_error="skip")
    assert sum(result.plan.quotas.values()) == 2

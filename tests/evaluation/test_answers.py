"""A table of answer strings, real and adversarial, with the verdict that each must get and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer

TABLE = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text("utf-8").splitlines()]


def spec_of(row: dict) -> AnswerSpec:  # type: ignore[type-arg]
    return AnswerSpec(kind=row["kind"], labels=tuple(row.get("labels", ())), pattern=row.get("pattern"))


def verdict_of(row: dict) -> str:  # type: ignore[type-arg]
    spec = spec_of(row)
    parsed = parse_answer(spec, row["text"])
    if parsed is None:
        return "unparsable"
    return "right" if answers_equal(spec, row["gold"], parsed) else "wrong"


def test_verdict(subtests: pytest.Subtests) -> None:
    for row in TABLE:
        with subtests.test(row=row):
            assert verdict_of(row) == row["verdict"], row


def test_unlike_answers_are_unlike_in_both_orders(subtests: pytest.Subtests) -> None:
    for one, other in [
        ("y=2x+1", "y=-2x+1"),
        ("(2,4)", "(4,2)"),
        ("\\text{(A)}", "\\text{(B)}"),
        ("x \\in [0,1)", "x \\in (0,1]"),
        ("{{", "}}"),
    ]:
        with subtests.test(one=one):
            spec = AnswerSpec(kind="math")
            assert not answers_equal(spec, one, other)
            assert not answers_equal(spec, other, one)
            assert answers_equal(spec, one, one)
            assert answers_equal(spec, other, other)

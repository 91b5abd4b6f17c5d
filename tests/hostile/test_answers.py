"""Degenerate responses: long runs of one thing must not stall a parser, which takes milliseconds or hangs."""

from __future__ import annotations

import pytest

from calibudget.tasks import AnswerSpec, answer_is_final, parse_answer

SPECS = [
    AnswerSpec(kind="choice", labels=("answer1", "answer2")),
    AnswerSpec(kind="choice", labels=("A", "B")),
    AnswerSpec(kind="true_false"),
    AnswerSpec(kind="number"),
    AnswerSpec(kind="math"),
    AnswerSpec(kind="exact"),
]
PIECES = [
    " ", "\n", "\t", "answer: ", "the answer is ", "answer1/", "answer1 or ", "the ", "\\boxed{", "\\text{", "{", "}",
    "$", '"', "*", "1", "1,", "1,000,", "1/", "- ", "####", "#### ", "?", "Question:", "\nQuestion", "\u202b",
    "\\frac{1}{", "not ", "A", "answer is answer is ", "1 ", ".", "e1",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join((spec.kind, *spec.labels)))
def test_a_long_run_is_parsed_at_once(spec: AnswerSpec) -> None:
    for piece in PIECES:
        for start in ("", "x", "answer:", "#### 5", "\\boxed{5"):
            text = start + piece * (20_000 // len(piece))
            parse_answer(spec, text)
            answer_is_final(spec, text)

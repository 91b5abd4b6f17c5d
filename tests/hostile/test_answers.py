"""Degenerate responses: long runs of one thing must not stall a parser, which takes milliseconds or hangs."""

from __future__ import annotations

from time import process_time

import pytest

from calibudget.tasks.answers import AnswerSpec, answer_is_final, parse_answer

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


STARTS = ("", "x", "answer:", "#### 5", "\\boxed{5")
RUNS = [(start, piece) for piece in PIECES for start in STARTS]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join((spec.kind, *spec.labels)))
@pytest.mark.parametrize(
    "runs",
    [
        # each piece after one of the starts, which take turns
        pytest.param([RUNS[5 * at + at % 5] for at in range(len(PIECES))], id="some"),
        pytest.param(RUNS, id="all", marks=pytest.mark.full),
    ],
)
def test_a_long_run_is_parsed_at_once(spec: AnswerSpec, runs: list[tuple[str, str]]) -> None:
    for start, piece in runs:
        text = start + piece * (20_000 // len(piece))
        began = process_time()  # of computing, whatever else the machine does
        parse_answer(spec, text)
        answer_is_final(spec, text)
        assert process_time() - began < 5, (start, piece)

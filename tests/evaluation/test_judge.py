from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.evaluation.benchmarks import TASKS, Benchmark, shared_items, training_prompts
from calibudget.evaluation.generation import choice_items, choices_of, chosen_again, likeliest
from calibudget.evaluation.judge import Judge, judged_again
from calibudget.evaluation.results import Prediction
from calibudget.evaluation.sandbox import Sandbox
from calibudget.records import Message, Record
from calibudget.scoring.scorer import CalibrationItem, Measurement
from calibudget.sources.identity import identify
from calibudget.tasks.answers import AnswerSpec

CHOICE = AnswerSpec(kind="choice", labels=("answer1", "answer2", "answer3"))


def make(task: str, *golds: str | None, answer: AnswerSpec = CHOICE, **original: object) -> Benchmark:
    items = []
    for number, gold in enumerate(golds):
        prompt = (Message(role="user", content=f"Question {number}? Answer format: answer1/answer2"),)
        completion = f"the correct answer is {gold}" if gold else "."
        record = Record(
            source=task, record_id=f"{task}-{number}", prompt_hash=identify(prompt, completion).prompt_hash,
            prompt=prompt, completion=completion, answer=gold, original=original,
        )  # fmt: skip
        items.append(CalibrationItem(record=record, answer=answer))
    return Benchmark(task=TASKS[task], items=tuple(items), files=(), left_out=0)


def test_strict_verdicts() -> None:
    benchmark = make("arc_easy", *["answer1"] * 5)
    texts = ["the correct answer is answer1", "the correct answer is answer2", "who knows", "", None]
    given = {f"arc_easy-{number}": text for number, text in enumerate(texts) if text is not None}
    found = Judge(None).judge(benchmark, given)
    assert [one.verdict for one in found.values()] == ["right", "wrong", "unparsable", "unparsable", "unparsable"]
    assert found["arc_easy-4"].reason == "empty"  # a missing text is an empty one
    assert found["arc_easy-1"].prediction == "answer2"


@pytest.mark.slow
def test_instructions_are_judged_together() -> None:
    pytest.importorskip("if_verifiable")
    original: dict[str, Any] = {
        "prompt": "x",
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {}],
    }
    benchmark = make("ifeval", None, None, None, answer=AnswerSpec(kind="exact"), **original)
    found = Judge(None).judge(benchmark, {"ifeval-0": '"yes"', "ifeval-1": '"a, b"', "ifeval-2": "  "})
    assert [one.verdict for one in found.values()] == ["right", "wrong", "unparsable"]
    assert found["ifeval-1"].reason == "not followed: punctuation:no_comma"


ADD: dict[str, Any] = {
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "def check(c):\n    assert c(2, 3) == 5\n",
}


@pytest.mark.slow
def test_code_is_judged_by_its_tests(sandbox: Sandbox) -> None:
    benchmark = make("humaneval", *[None] * 4, answer=AnswerSpec(kind="exact"), **ADD)
    texts = ["    return a + b", "    return a - b", "", "    import os; os._exit(0)"]
    judge = Judge(sandbox)
    found = judge.judge(benchmark, {f"humaneval-{number}": text for number, text in enumerate(texts)})
    assert [one.verdict for one in found.values()] == ["right", "wrong", "unparsable", "wrong"]
    assert found["humaneval-1"].reason.startswith("failed: line 2")
    assert judge.describe(benchmark)["sandbox"] == sandbox.describe()


def test_only_offered_labels_are_choices() -> None:
    [item] = make("arc_easy", "answer2").items
    assert choices_of(item) == ("answer1", "answer2")
    assert [one.record.completion for one in choice_items(make("arc_easy", "answer2"))] == [
        "the correct answer is answer1",
        "the correct answer is answer2",
    ]


def test_the_likeliest_statement_wins_by_its_sum() -> None:
    benchmark = make("arc_easy", "answer1", "answer2")
    measured = [
        Measurement(source="arc_easy", record_id=f"arc_easy-{n}|answer{k}", response_tokens=tokens, nll=nll, text=None)
        for n, k, tokens, nll in ((0, 1, 2, 1.0), (0, 2, 4, 0.6), (1, 1, 1, 3.0), (1, 2, 2, 1.5))
    ]
    found = likeliest(benchmark, measured)
    assert [one.prediction for one in found] == ["answer1", "answer1"]  # 2.0 < 2.4; a tie goes to the first
    assert [one.verdict for one in found] == ["right", "wrong"]
    assert {one.task for one in found} == {"arc_easy_likelihood"}


def test_prompts_of_the_training_set_are_found_whatever_their_case_and_spacing(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    row = '{"source": "a", "record_id": "r", "role": "source", "prompt": "%s", "completion": "x", "original": {}}\n'
    path.write_text(row % "QUESTION 1?   answer FORMAT: answer1/answer2" + row % "Something else")
    benchmark = make("arc_easy", "answer1", "answer1", "answer2")
    assert shared_items(benchmark, training_prompts(path)) == ("arc_easy-1",)
    assert shared_items(benchmark, ()) == ()


def row(task: str, text: str, gold: str, **more: object) -> Prediction:
    given: dict[str, Any] = {"prediction": None, "verdict": "wrong", **more}
    return Prediction(task=task, item_id="x", text=text, gold=gold, **given)


def test_verdicts_from_the_rows_alone(subtests: pytest.Subtests) -> None:
    for given, prediction, verdict in [
        (row("piqa", "the correct answer is solution2", "solution2"), "solution2", "right"),
        (row("boolq", "the correct answer is false", "true"), "false", "wrong"),
        (row("gsm8k", "It is 7.", "7"), "7", "right"),
        (row("gsm8k", "who knows", "7", verdict="right", prediction="7"), None, "unparsable"),
        (row("math500", r"\boxed{x+1}", "x+1"), "x+1", "right"),
        (row("math500", r"\boxed{12}", "13", verdict="right"), "12", "wrong"),
        (row("math500", r"\boxed{x+1}", "1+x", verdict="right"), "x+1", "right"),  # only math-verify could say
        (row("math500", r"\boxed{x+1}", "1+x", verdict="deferred"), "x+1", "right or wrong"),
        (row("bbh", "The answer is No.", "Yes"), "No", "wrong"),
        (row("bbh", "The answer is (B).", "B", prediction="B", verdict="wrong"), "B", "right"),
        (row("bbh", "The answer is (B).", "C", prediction="B", verdict="right"), "B", "wrong"),
    ]:
        with subtests.test(prediction=prediction):
            assert judged_again(given) == (prediction, verdict)


def test_choices_from_the_rows_alone(subtests: pytest.Subtests) -> None:
    for reason, prediction, found in [
        ("answer1 -2.5, answer2 -1e-07", "answer1", ("answer2", "right")),
        ("answer1 -2.5, answer2 -7", "answer2", ("answer1", "wrong")),
        ("answer1 -2.5, answer2 -2.5", "answer2", ("answer2", "right")),  # equal as printed
        ("", "answer2", (None, "wrong")),
    ]:
        with subtests.test(reason=reason):
            assert (
                chosen_again(row("arc_easy_likelihood", "", "answer2", prediction=prediction, reason=reason)) == found
            )

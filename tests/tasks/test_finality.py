"""`answer_is_final` is sound: where it says yes, nothing that follows changes the parsed answer."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calibudget.tasks.answers import AnswerSpec, answer_is_final, parse_answer

SPECS = [
    AnswerSpec(kind="choice", labels=("answer1", "answer2", "answer10")),
    AnswerSpec(kind="choice", labels=("A", "B", "C")),
    AnswerSpec(kind="choice", labels=("1", "2", "10")),
    AnswerSpec(kind="choice", labels=("true", "true story", "c++")),
    AnswerSpec(kind="choice", labels=("true", "true story", "not-so")),
    AnswerSpec(kind="choice", labels=("\u6b63\u9762", "\u8d1f\u9762", "\u4e0d\u6b63")),
    AnswerSpec(kind="true_false"),
    AnswerSpec(kind="number"),
    AnswerSpec(kind="math"),
    AnswerSpec(kind="exact"),
    AnswerSpec(kind="regex", pattern=r"<a>(.*?)</a>"),
    AnswerSpec(kind="none"),
]

#: Pieces of which adversarial responses are made: openers, labels, joints, marks and what may extend them.
PIECES = [
    "the correct answer is ", "Answer: ", "answer", "the answer is not ", "I choose ", "option ", "#### ",
    "####", "\\boxed{", "}", "answer1", "answer2", "answer10", "answer", "1", "0", "2", "10", ".", ",", "5",
    "a", "A", "B", "(B)", "true", "True story", " story", "false", "yes", "no", "c++", "c", "not-so", "not ",
    " or ", "/", " ", "\n", "\n\n", "?", "!", "**", '"', ")", "Question: ", "Q:", "\nQuestion: ",
    "### Instruction", "<|im_end|>", "</s>", "<", "|im_end|>", "\u200b", "\xa0", "\u0301", "\u0661", "\uff11",
    "$", "\\$", "\\,", "{,}", "=", "-", "\u2212", "the ", "\\text{", "<a>", "</a>",
    "\u7b54\u6848\u662f", "\u4e0d\u662f", "\uff0c\u800c\u662f", "\u6b63\u9762", "\u4e0d\u6b63", "\u3002",
    "\uff08", "\u0303", "\u202f", "200",
    " is wrong", " is correct", "ruling out ", " but ", "Die Antwort ist ", " oder ", ", sondern ", " nicht ",
    "<think>", "</think>", "\nFrage: ", "Please choose the correct ",
    "below is an instruction", "\r\n", "\u2028", "none",
]  # fmt: skip

texts = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join((spec.kind, *spec.labels)))
@settings(max_examples=40)
@given(start=texts, rest=texts)
def test_a_final_answer_stays(spec: AnswerSpec, start: str, rest: str) -> None:
    _check(spec, start, rest)


@pytest.mark.full
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join((spec.kind, *spec.labels)))
@settings(max_examples=10_000)
@given(start=texts, rest=texts)
def test_a_final_answer_stays_in_many_cases(spec: AnswerSpec, start: str, rest: str) -> None:
    _check(spec, start, rest)


def _check(spec: AnswerSpec, start: str, rest: str) -> None:
    assume("</think>" not in re.sub("<think>.*?</think>", "", start + rest, flags=re.DOTALL))  # nothing opened it
    if answer_is_final(spec, start):
        assert parse_answer(spec, start + rest) == parse_answer(spec, start)
        assert answer_is_final(spec, start + rest)


def test_a_settled_answer_is_seen_as_final(subtests: pytest.Subtests) -> None:
    for spec, text in [
        (SPECS[0], "the correct answer is answer1\n"),
        (SPECS[0], "the correct answer is answer1. "),
        (SPECS[0], "answer2\n"),
        (SPECS[1], "(B)\n"),
        (SPECS[2], "Answer: 2.\n"),
        (SPECS[6], "The answer is yes.\n"),
        (SPECS[7], "so 3 + 4 = 7\n#### 7\n"),
        (SPECS[8], "#### \\frac{1}{2}\n"),
        (SPECS[9], "olleh\n\n### Instruction"),
        (SPECS[11], ""),
    ]:
        with subtests.test(text=text):
            assert answer_is_final(spec, text)


def test_what_may_still_change_is_not_final(subtests: pytest.Subtests) -> None:
    for spec, text in [
        (SPECS[0], ""),
        (SPECS[0], "the correct answer is answer1"),  # may go on to answer10
        (SPECS[0], "the correct answer is answer1/"),
        (SPECS[0], "I like answer1\n"),  # a statement may follow
        (SPECS[2], "the answer is 1."),  # may go on to 1.5
        (SPECS[3], "the answer is true. "),  # a label with punctuation: only the end of the text settles it
        (SPECS[7], "The answer is 5.\n"),  # models correct themselves
        (SPECS[7], "#### 7"),
        (SPECS[9], "olleh\n"),
        (SPECS[10], "<a>x</a>\n"),
    ]:
        with subtests.test(text=text):
            assert not answer_is_final(spec, text)

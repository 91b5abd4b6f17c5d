from __future__ import annotations

import pytest

from calibudget.errors import DataError
from calibudget.tasks.answers import AnswerSpec, gold_answer, parse_answer

EXACT = AnswerSpec(kind="exact")
REGEX = AnswerSpec(kind="regex", pattern=r"<answer>(.*?)</answer>")
NONE = AnswerSpec(kind="none")


def test_exact_is_the_whole_response(subtests: pytest.Subtests) -> None:
    for text, answer in [
        (" olleh \n", "olleh"),
        ("two  words\nhere", "two words here"),
        ("cafe\u0301", "caf\u00e9"),
        ("olleh\n\n### Instruction:\nReverse", "olleh"),
        ("olleh<|im_end|>", "olleh"),
        ("", None),
        (" \n", None),
    ]:
        with subtests.test(text=text):
            assert parse_answer(EXACT, text) == answer


def test_regex_is_the_first_match(subtests: pytest.Subtests) -> None:
    for text, answer in [
        ("x <answer> 5 </answer> y <answer>6</answer>", "5"),
        ("<answer></answer>", None),
        ("nothing", None),
        ("hm\n\nQuestion: z\n<answer>6</answer>", None),
    ]:
        with subtests.test(text=text):
            assert parse_answer(REGEX, text) == answer


def test_a_field_gives_the_gold_answer(subtests: pytest.Subtests) -> None:
    for spec, value, answer in [
        (AnswerSpec(kind="choice", labels=("true", "false"), field="a"), "True", "true"),
        (AnswerSpec(kind="choice", labels=("0", "1"), field="a"), 1, "1"),
        (AnswerSpec(kind="choice", labels=("caf\u00e9", "th\u00e9"), field="a"), "CAFE\u0301", "caf\u00e9"),
        (AnswerSpec(kind="true_false", field="a"), True, "true"),
        (AnswerSpec(kind="true_false", field="a"), "False", "false"),
        (AnswerSpec(kind="number", field="a"), "#### 1,200", "1200"),
        (AnswerSpec(kind="number", field="a"), 2.5, "2.5"),
        (AnswerSpec(kind="number", field="a"), "16 - 3 = 13 eggs\n#### 13", "13"),
        (AnswerSpec(kind="number", field="a"), "3 cm^2", "3"),
        (AnswerSpec(kind="number", field="a"), "1\u00bd", "1.5"),
        (AnswerSpec(kind="number", field="a"), "1.234,5", "1234.5"),
        (AnswerSpec(kind="number", field="a"), "1.5 x 10^3", "1500"),
        (AnswerSpec(kind="number", field="a"), "\u20ac29,00", "29"),
        (AnswerSpec(kind="number", field="a"), "<think>3 or 4</think>4", "4"),
        (AnswerSpec(kind="math", field="a"), "\\dfrac{1}{9}", "\\dfrac{1}{9}"),
        (AnswerSpec(kind="math", field="a"), "so \\boxed{3}", "3"),
        (AnswerSpec(kind="exact", field="a"), " a  b ", "a b"),
        (AnswerSpec(kind="regex", pattern="<(.*)>", field="a"), "<5>", "5"),
        (AnswerSpec(kind="regex", pattern="<(.*)>", field="a"), "5", "5"),
    ]:
        with subtests.test(spec=spec, value=value, answer=answer):
            assert gold_answer(spec, {"a": value}, "unused") == answer


def test_a_gold_answer_that_cannot_be_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for spec, value, message in [
        (AnswerSpec(kind="choice", labels=("a", "b"), field="key"), None, "'key' is missing or null"),
        (AnswerSpec(kind="choice", labels=("a", "b"), field="key"), "c", "'key' holds 'c', which is none of a, b"),
        (AnswerSpec(kind="choice", labels=("a", "b"), field="key"), True, "holds bool, not text"),
        (AnswerSpec(kind="true_false", field="key"), 1, "none of true, false"),
        (AnswerSpec(kind="number", field="key"), "many", "holds no number answer"),
        (AnswerSpec(kind="exact", field="key"), "  ", "holds no exact answer"),
        *(
            (AnswerSpec(kind="number", field="key"), value, "'key' holds .*, which is not one number")
            for value in (
                "9:30",
                "2024-01-05",
                "January 5",
                "3 and 4",
                "1 200",
                "18 (3 boxes of 6)",
                "1.5 x 3",
                "B-52",
                "2\u03c0",
                "3 million",
                "5<x",
                "\u2264 7",
            )
        ),
    ]:
        with subtests.test(message=message), pytest.raises(DataError, match=message):
            gold_answer(spec, {"key": value}, "a")


def test_a_gold_text_states_its_answer_after_the_reasoning() -> None:
    spec = AnswerSpec(kind="choice", labels=("A", "B"))
    assert gold_answer(spec, {}, "<think>\nThe answer is A at first.\n</think>\n\nThe answer is B.") == "B"
    with pytest.raises(DataError, match="states no choice answer"):
        gold_answer(spec, {}, "<think>\nThe answer is A at first.")

"""Verdicts on real and adversarial answer strings, each with its reason."""

from __future__ import annotations

import pytest

from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer

ANSWERS = AnswerSpec(kind="choice", labels=("answer1", "answer2", "answer3", "answer10"))
OPTIONS = AnswerSpec(kind="choice", labels=("option1", "option2"))
SOLUTIONS = AnswerSpec(kind="choice", labels=("solution1", "solution2"))
TRUTH = AnswerSpec(kind="choice", labels=("true", "false"))
LETTERS = AnswerSpec(kind="choice", labels=("A", "B", "C", "D"))
LOWER = AnswerSpec(kind="choice", labels=("a", "b", "c"))
DIGITS = AnswerSpec(kind="choice", labels=("0", "1", "2", "10"))
WORDS = AnswerSpec(kind="choice", labels=("very good", "good", "bad"))
ACCENTED = AnswerSpec(kind="choice", labels=("caf\u00e9", "th\u00e9"))
YES_NO = AnswerSpec(kind="true_false")

CASES = [
    # the instruction format's own answers
    (ANSWERS, "The correct answer is Answer1.", "answer1"),
    (OPTIONS, "  the correct answer is option2  ", "option2"),
    # the longest label, as a whole word
    (ANSWERS, "the correct answer is answer10", "answer10"),
    (ANSWERS, "myanswer1", None),
    (WORDS, "The answer is very good.", "very good"),
    # spelling that differs in spaces only
    (ANSWERS, "The correct answer is answer 2", "answer2"),
    (WORDS, "The answer is very  good", "very good"),
    # a statement wins over a mention, wherever it stands
    (ANSWERS, "I like answer2 because answer3 is odd. The correct answer is answer1", "answer1"),
    (TRUTH, "It is true that some say false. Answer: false", "false"),
    # the first statement wins over what is invented afterwards
    (ANSWERS, "the correct answer is answer1\n\nthe correct answer is answer2", "answer1"),
    (ANSWERS, "the correct answer is answer2\n\n### Instruction:\nPlease choose: the answer is answer3", "answer2"),
    (ANSWERS, "no idea\n\n### Instruction:\nthe correct answer is answer3", None),
    (ANSWERS, "hm\nQuestion: what? the correct answer is answer3", None),
    (ANSWERS, "<|im_end|>\nthe correct answer is answer3", None),
    (ANSWERS, "Question: which one? The answer is answer2", "answer2"),  # repeated, not invented
    # the first mention, where nothing is stated
    (ANSWERS, "I think answer2 fits better than answer3", "answer2"),
    # the answer format, repeated, is no answer
    (ANSWERS, "answer1/answer2/answer3", None),
    (ANSWERS, "The answer is answer1/answer2", None),
    (ANSWERS, "answer1/answer2/answer3 the correct answer is answer3", "answer3"),
    (ANSWERS, "answer1, answer2, answer3", None),
    (ANSWERS, "The correct answer is answer1 and answer2.", None),
    (ANSWERS, "answer2 answer2 answer2", "answer2"),  # said again, not another one
    (TRUTH, "yes, true.", "true"),
    # denials
    (ANSWERS, "The answer is not answer1 but answer2", "answer2"),
    (ANSWERS, "It isn't answer1, it's answer3", "answer3"),
    # decoration
    (ANSWERS, "**Answer:** answer2", "answer2"),
    (ANSWERS, "\\boxed{\\text{answer2}}", "answer2"),
    (ANSWERS, "The correct answer should be answer2", "answer2"),
    # invisible and non-ASCII forms
    (ANSWERS, "the correct answer is \u202banswer2\u202c", "answer2"),  # right-to-left marks
    (ANSWERS, "the correct answer is answer\u0663", "answer3"),  # Arabic-Indic digit
    (ACCENTED, "The answer is CAF\u00c9", "caf\u00e9"),
    (TRUTH, "the answer is \u201ctrue\u201d", "true"),
    # nothing
    (ANSWERS, "   \n\n", None),
    (ANSWERS, "the correct answer is answer4", None),  # no such label
    # letters
    (LETTERS, "b", "B"),
    (LETTERS, "C) Paris", "C"),
    (LETTERS, "A man is sitting", None),
    (LETTERS, "The answer is a dog", None),
    (LETTERS, "The answer is a.", "A"),
    (LETTERS, "The correct option is B: because", "B"),
    (LETTERS, "Option B fits", "B"),
    (LETTERS, "It must be (B), since", "B"),
    (LOWER, "the answer is b", "b"),
    # digits
    (DIGITS, "1", "1"),
    (DIGITS, "1.5", None),
    (DIGITS, "The answer is 1.5", None),
    (DIGITS, "there are 2 dogs", None),
    (DIGITS, "option 2", "2"),
    (DIGITS, "the answer is \u0662", "2"),
    # true_false: yes and no count, at the start or stated
    (YES_NO, "the correct answer is true", "true"),
    (YES_NO, "Yes", "true"),
    (YES_NO, "There is no doubt", None),
    (YES_NO, "It is not true", None),
    (YES_NO, "true or false", None),
    (TRUTH, "yes", None),  # a choice has the labels it has
]


def test_a_response_parses_to_its_label(subtests: pytest.Subtests) -> None:
    for spec, text, answer in CASES:
        with subtests.test(spec=spec, text=text, answer=answer):
            assert parse_answer(spec, text) == answer


def test_labels_come_back_as_they_are_spelled() -> None:
    spec = AnswerSpec(kind="choice", labels=("Answer1", "ANSWER2"))
    assert parse_answer(spec, "the correct answer is answer2") == "ANSWER2"
    assert answers_equal(spec, "ANSWER2", "answer2")
    assert not answers_equal(spec, "ANSWER2", "Answer1")
    assert not answers_equal(spec, "ANSWER2", None)


def test_a_label_with_punctuation_is_a_whole_word_too() -> None:
    spec = AnswerSpec(kind="choice", labels=("c", "c++", "don't know"))
    assert parse_answer(spec, "The answer is c++") == "c++"
    assert parse_answer(spec, "I don't know") == "don't know"

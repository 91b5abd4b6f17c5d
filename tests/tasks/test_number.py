from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer
from calibudget.tasks.number import canonical_number, number_value

NUMBER = AnswerSpec(kind="number")

CASES = [
    # field-cases: EleutherAI/lm-evaluation-harness #3214
    ("costs $29.00.", "29"),
    # field-cases: sgl-project/sglang PR #29933, run-on text after the answer
    ("The answer is 18.\n\nQuestion: Tom has 5 apples. How many?\nAnswer: The answer is 5.", "18"),
    ("The answer is 18.\n\nTom has 5 apples and eats 2. How many are left?\nThe answer is 3.", "18"),
    ("She makes 9 * 2 = 18 dollars.\n#### 18\n\nTom has 5 apples.\n#### 5", "18"),
    ("18\n\n### Instruction:\nWhat is 4 + 4?\n\n### Response:\n8", "18"),
    # the last stated answer
    ("The answer is 3. Wait, that's wrong. The answer is 4.", "4"),
    ("so 24 + 48 = 72 clips\n#### 72\nThe answer is: 72", "72"),
    ("The answer is $\\boxed{42}$. The answer uses 3 steps.", "42"),
    ("**Answer:** 18 apples", "18"),
    ("The answer is:\n\n18", "18"),
    ("The answer is 5 + 3 = 8 apples", "8"),
    # the last number, where nothing is stated
    ("She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs", "9"),
    ("it takes 3 days and 4 hours", "4"),
    # money, thousands, signs, units, percentages
    ("The answer is $1,200.50.", "1200.5"),
    ("1,00,000", "100000"),
    ("1, 2", "2"),
    ("\\$1{,}000", "1000"),
    ("10\\,000", "10000"),
    ("\u22125", "-5"),
    ("$-5", "-5"),
    ("16-3", "3"),
    ("40\u20ac", "40"),
    ("2.5e-1", "0.25"),
    # fractions
    ("3/4", "0.75"),
    ("1/3", "1/3"),
    ("1 1/2 cups", "1.5"),
    ("\\dfrac{-1}{3}", "-1/3"),
    ("2\\frac{1}{2}", "2.5"),
    ("\\boxed{\\frac{22}{7}}", "22/7"),
    ("5/0", None),
    ("The answer is 1\u00bd cups.", "1.5"),
    ("-2 \u2153", "-7/3"),
    ("1\u20442", "0.5"),
    # decimal commas, where they can be nothing else
    ("The answer is -1 234,5", "-1234.5"),
    ("0.125,0.5", "0.5"),
    ("12 apples, 234,567 pears", "234567"),
    # one of two numbers is no answer
    ("It takes between 3 and 5 days, so 4", "4"),
    ("Die Antwort liegt zwischen 3 und 5", None),
    ("The answer is $x = 2$ or $x = 3$.", None),
    ("The answer is 2 or 3. Checking: the answer is 3.", "3"),
    ("The answer is 1/2 or 0.5", "0.5"),
    ("3 and 5 are odd, so 8", "8"),
    # digits that aren't ASCII
    ("\u0663\u0665", "35"),
    ("\uff12\uff19", "29"),
    # none
    ("no number here", None),
    ("x2", None),
    ("1" * 2000, None),
]


def test_a_response_parses_to_its_number(subtests: pytest.Subtests) -> None:
    for text, answer in CASES:
        with subtests.test(text=text, answer=answer):
            assert parse_answer(NUMBER, text) == answer


def test_numbers_compare_exactly(subtests: pytest.Subtests) -> None:
    for gold, predicted, equal in [
        ("29", "29.00", True),
        ("1,200", "1200", True),
        ("1/2", "0.5", True),
        ("\\frac{1}{3}", "2/6", True),
        ("50%", "50", True),
        ("1/3", "0.3333", False),
        ("29", None, False),
        ("29", "twenty-nine", False),
        ("x", "x", False),  # no number: never right
        ("123456789012345678901234567890", "123456789012345678901234567890", True),
        ("123456789012345678901234567890", "123456789012345678901234567891", False),
    ]:
        with subtests.test(gold=gold, predicted=predicted, equal=equal):
            assert answers_equal(NUMBER, gold, predicted) is equal


@settings(max_examples=50)
@given(st.fractions(max_denominator=10**6))
def test_the_canonical_form_is_exact(value: Fraction) -> None:
    text = canonical_number(value)
    assert number_value(text) == value
    assert parse_answer(NUMBER, f"so the answer is {text}.") == text


@settings(max_examples=50)
@given(st.integers(-(10**12), 10**12))
def test_every_way_to_write_an_integer_is_that_integer(value: int) -> None:
    forms = "{0}", "{0:,}", "{0}.00", "#### {0:,}", "The answer is {0:,}.", "\\boxed{{{0}}}"
    for text in (form.format(value) for form in forms):
        assert parse_answer(NUMBER, text) == str(value)

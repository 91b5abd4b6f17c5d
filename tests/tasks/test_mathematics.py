"""Mathematical answers. The pairs that need math-verify run in its worker process."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from calibudget.errors import DependencyError
from calibudget.tasks import mathematics, time_limits
from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer
from calibudget.tasks.mathematics import light_form

MATH = AnswerSpec(kind="math")

needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify isn't installed"
)


PARSED = [
    ("Therefore the graph has $\\boxed{2}$ asymptotes.", "2"),
    ("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("\\boxed{\\sqrt{\\{x\\}}}", "\\sqrt{\\{x\\}}"),
    ("\\boxed 7", "7"),
    ("\\boxed{1}.\n\nQuestion: what?\n\\boxed{2}", "1"),
    ("\\boxed{1} Is it really so? \\boxed{2}", "1"),
    ("The answer is: $x^2+1$.", "x^2+1"),
    ("The answer is $\\frac{1}{2}$\n", "\\frac{1}{2}"),
    ("#### 18\nThe answer is: 18", "18"),
    ("The answer is 5 apples.", "5"),
    ("The answer is the set $\\{1,2\\}$.", "\\{1,2\\}"),
    ("The answer is Evelyn.", "Evelyn"),
    ("\\dfrac{1}{9}", "\\dfrac{1}{9}"),
    ("$\\left( -\\infty, 2 \\right)$", "\\left( -\\infty, 2 \\right)"),
    ("\\text{Evelyn}", "\\text{Evelyn}"),
    ("so we get 5 apples", "5"),
    ("\\boxed{", None),
    ("", None),
    ("no idea at all", None),
]


def test_a_response_parses_to_its_expression(subtests: pytest.Subtests) -> None:
    for text, answer in PARSED:
        with subtests.test(text=text, answer=answer):
            assert parse_answer(MATH, text) == answer


SAME_STRING = [
    ("(2,4)", "(2,4)"),  # field-cases: EleutherAI/lm-evaluation-harness PR #4034
    ("(2, 4)", "(2,4)"),
    ("\\foo{{", "\\foo{{"),  # unparsable, and the very same
    ("\\dfrac{1}{2}", "\\frac{1}{2}"),
    ("\\frac12", "\\frac{1}{2}"),
    ("\\left[1,2\\right]", "[1,2]"),
    ("27^{\\circ}", "27"),
    ("50\\%", "50"),
    ("180\\text{ miles}", "180"),
    ("5", "5\\text{ cm}^2"),
    ("\\text{Evelyn}", "Evelyn"),
    ("0.5", "\\frac{1}{2}"),
    ("-\\frac{1}{6}", "-1/6"),
]


@pytest.mark.parametrize(("gold", "predicted"), SAME_STRING)
def test_equal_without_math_verify(gold: str, predicted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "judged_equal", None)
    assert answers_equal(MATH, gold, predicted)


def test_two_numbers_need_no_math_verify(subtests: pytest.Subtests) -> None:
    for gold, predicted in [("1", "2"), ("\\frac{1}{2}", "0.6"), ("3,000", "3"), ("-1", "1")]:
        with subtests.test(gold=gold):
            assert not answers_equal(MATH, gold, predicted)


def test_units_on_both_sides_must_agree() -> None:
    assert light_form("180\\text{ miles}") != light_form("180\\text{ feet}")


@needs_math_verify
def test_math_verify_judges_the_rest(subtests: pytest.Subtests) -> None:
    for gold, predicted, equal in [
        ("x^2+1", "1+x^2", True),
        ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}", True),
        ("\\left[ \\frac{3}{4}, 1 \\right]", "[0.75, 1]", True),
        ("\\{1,2\\}", "\\{2,1\\}", True),
        ("x^2+1", "x^2+2", False),
        ("(1,2)", "(2,1)", False),
    ]:
        with subtests.test(gold=gold):
            assert answers_equal(MATH, gold, predicted) is equal


@needs_math_verify
def test_what_cannot_be_parsed_is_wrong_both_ways(subtests: pytest.Subtests) -> None:
    for one, two in [
        ("3*x-1*y+13=0", "3x + 4y + 14=0"),  # field-cases: huggingface/Math-Verify #60
        ("\\foo{{", "\\bar{{"),
        ("\\ldots", "x"),
        ("1:2:3:\\ldots", "1:4:9:\\ldots"),
        ("", "x+"),
        ("listen", "silent"),  # read as products of letters these would be equal
        ("x" * 3000, "y" * 3000),
    ]:
        with subtests.test(one=one):
            assert not answers_equal(MATH, one, two)
            assert not answers_equal(MATH, two, one)


@pytest.mark.slow
@needs_math_verify
def test_a_comparison_that_takes_too_long_is_wrong_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = time_limits._PROGRAM.read_text(encoding="utf-8").replace('["1", "1"], 10,', '["1", "1"], 1,')
    (tmp_path / "slow.py").write_text(
        slow.replace("    whole =", "    while question[0] == 'a+c':\n        pass\n    whole =")
    )
    monkeypatch.setattr(time_limits, "_PROGRAM", tmp_path / "slow.py")
    monkeypatch.setattr(time_limits, "_idle", {})
    assert answers_equal(MATH, "a+b", "b+a")
    assert not answers_equal(MATH, "a+c", "c+a")
    assert answers_equal(MATH, "a+d", "d+a")
    time_limits._idle["math"].pop().stop()


@pytest.mark.slow
@needs_math_verify
def test_a_worker_that_dies_is_replaced() -> None:
    assert answers_equal(MATH, "a+d", "d+a")
    time_limits._idle["math"][-1]._process.kill()
    time_limits._idle["math"][-1]._process.wait()
    assert not answers_equal(MATH, "a+e", "e+a")
    mathematics.judged_equal.cache_clear()
    assert answers_equal(MATH, "a+e", "e+a")


@pytest.mark.slow
@needs_math_verify
def test_threads_that_ask_at_once_get_their_own_verdicts() -> None:
    pairs = [(f"a+{n}b", f"{n if n % 2 else n + 1}b+a") for n in range(2, 30)]
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda pair: answers_equal(MATH, *pair), pairs))
    assert verdicts == [bool(n % 2) for n in range(2, 30)]
    assert len(time_limits._idle["math"]) <= 5


def test_without_math_verify_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    mathematics.judged_equal.cache_clear()
    with pytest.raises(DependencyError, match=r"pip install 'calibudget\[math\]'"):
        answers_equal(MATH, "x+y+1", "1+x+y")

from __future__ import annotations

import ast
import gzip
import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.evaluation import code_tasks
from calibudget.evaluation.code_tasks import continuation, extract_code, humaneval_case, mbpp_case
from calibudget.evaluation.sandbox import CodeCase, Sandbox

ADD = {
    "prompt": 'import math\n\ndef helper(x):\n    return x\n\ndef add(a, b):\n    """Sum."""\n',
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == helper(5)\n",
}
WHOLE = "def add(a, b):\n    return a + b\n"
BODY = "    return a + b\n"


def test_code_is_found_in_a_text(subtests: pytest.Subtests) -> None:
    for text, code in [
        (WHOLE, WHOLE),
        (f"Sure:\n```python\n{WHOLE}```\nDone.", f"\n{WHOLE}"),
        (f"```\n{WHOLE}```", f"\n{WHOLE}"),
        (f"{WHOLE}```\nThat is all.", WHOLE),  # only a closing fence: lm-evaluation-harness issue 3447
        (f"Here:\n```python\n{WHOLE}", f"\n{WHOLE}"),  # only an opening one: cut by the token limit
        (f"```python\nprint(1)\n```\nand\n```python\n{WHOLE}```", f"\n{WHOLE}"),  # the block with the function
        (f"```python\n{WHOLE}```\nUse:\n```python\nadd(1, 2)\n```", f"\n{WHOLE}"),
        (f"{WHOLE}```\nOutput:\n```\n5\n```", WHOLE),
    ]:
        with subtests.test(text=text):
            assert extract_code(text, "add") == code


def test_a_continuation_ends_where_something_else_begins() -> None:
    assert continuation("    return 1\n\nprint(f(1))\n") == "    return 1\n"
    assert continuation("    return 1\n\n    # still inside\n") == "    return 1\n\n    # still inside\n"
    assert continuation("    x = 1\n    return x\ndef other():\n    pass") == "    x = 1\n    return x"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"{BODY}\n\nprint(add(1, 2))\nassert False",
        f"```python\n{WHOLE}```",
        f"```python\n{ADD['prompt']}{BODY}```",
        "def add(a, b):\n    return helper(a) + b\n",
    ],
)
def test_a_right_humaneval_text_passes(sandbox: Sandbox, text: str) -> None:
    assert sandbox.run(humaneval_case(ADD, text)).passed


@pytest.mark.slow
@pytest.mark.parametrize("text", ["    pass\n", "I can't.", WHOLE.replace("+", "-")])
def test_a_wrong_humaneval_text_fails(sandbox: Sandbox, text: str) -> None:
    assert not sandbox.run(humaneval_case(ADD, text)).passed


def test_names_under_test_are_those_that_tests_use_and_the_reference_defines() -> None:
    reference = "import math\nclass Pair: pass\ndef helper(): pass\ndef sum(a): return a"
    assert code_tasks.tested_names(reference, "assert sum([Pair()]) == math.pi + len('x')") == ("Pair", "sum")
    program = "def f(): pass\nclass Node: pass"
    assert code_tasks.tested_names(program, "root = Node()\nassert f(root) == 1") == ("f", "Node")
    with pytest.raises(DataError, match="nothing that its reference"):
        code_tasks.tested_names("def f(): pass", "assert len('') == 0")
    with pytest.raises(DataError, match="no Python"):
        code_tasks.tested_names("def f(:", "assert f()")
    assert code_tasks.tested_names("def f():\n    return '\\w'", "assert f()") == ("f",)  # an odd escape is no fault


def test_the_modules_that_tests_use_stand_beside_them() -> None:
    case = mbpp_case({"code": "def f(): pass", "test_list": ["assert math.isclose(f(), 1)"]}, "x")
    assert case.prelude == "import math"
    assert case.names == ("f",)


def test_a_task_without_tests_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        {},
        {"code": "def f(): pass"},
        {"code": "def f(): pass", "test_list": "assert f()"},
        {"code": 1, "test_list": []},
    ]
    for fields in cases:
        with subtests.test(fields=fields), pytest.raises((DataError, KeyError)):
            mbpp_case(fields, "")


def rows(data: Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(data / "modern" / f"{name}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


def references(data: Path) -> list[tuple[str, CodeCase]]:
    cases = [(row["task_id"], humaneval_case(row, row["canonical_solution"])) for row in rows(data, "humaneval.test")]
    for name in ("mbpp.all", "mbpp_sanitized.all"):
        cases += [(f"{name} {row['task_id']}", mbpp_case(row, row["code"])) for row in rows(data, name)]
    return cases


def passing(sandbox: Sandbox, cases: list[tuple[str, CodeCase]]) -> list[str]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda case: sandbox.run(case[1]), cases)
        return [name for (name, _), result in zip(cases, results, strict=True) if result.passed]


#: One in so many of the solutions, and all of them.
SOME = [pytest.param(70, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.full)]


@pytest.mark.data
@pytest.mark.parametrize("every", SOME)
def test_reference_solutions_pass(sandbox: Sandbox, data_dir: Path, every: int) -> None:
    cases = references(data_dir)
    assert len(cases) == 164 + 974 + 427
    assert passing(sandbox, cases[::every]) == [name for name, _ in cases[::every]]


class _Returns(ast.NodeTransformer):
    """A program whose every result is put in a list of its own."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        return ast.Return(ast.List([node.value or ast.Constant(None)], ast.Load()))


def mutated(data: Path) -> list[tuple[str, CodeCase]]:
    """The reference solutions of HumanEval and of MBPP's 500 test problems, with wrong results."""

    def wrong(program: str) -> str | None:
        with warnings.catch_warnings(action="ignore"):  # odd escapes
            tree, same = ast.parse(program), ast.unparse(ast.parse(program))
        other = ast.unparse(_Returns().visit(tree))
        return other if other != same else None

    cases = [
        (row["task_id"], humaneval_case(row, f"```python\n{wrong(row['prompt'] + row['canonical_solution'])}\n```"))
        for row in rows(data, "humaneval.test")
    ]
    asked = [row for row in rows(data, "mbpp.all") if 11 <= row["task_id"] <= 510]
    changed = [(row, other) for row in asked if (other := wrong(row["code"])) is not None]
    return cases + [(f"mbpp {row['task_id']}", mbpp_case(row, other)) for row, other in changed]


@pytest.mark.data
@pytest.mark.parametrize("every", SOME)
def test_mutated_solutions_fail(sandbox: Sandbox, data_dir: Path, every: int) -> None:
    cases = mutated(data_dir)
    assert len(cases) >= 164 + 490
    assert passing(sandbox, cases[::every]) == []

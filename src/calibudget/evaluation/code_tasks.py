"""From a data set's code task and a model's text to a case for the sandbox."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Final

from calibudget.errors import DataError, refuse_as
from calibudget.evaluation.sandbox import CodeCase
from calibudget.tasks.presets import text_of, texts_of

#: Where a base model that only continues a function has begun something else.
_NEXT_THING: Final = re.compile(r"\n(?=class\b|def\b|async def\b|@|#|if\b|print\b|assert\b|```)")
_FENCE: Final = re.compile(r"^[ \t]*```[^\n]*$", re.MULTILINE)


def humaneval_case(fields: Mapping[str, object], text: str) -> CodeCase:
    """The case of one HumanEval record (prompt, entry_point, test) for what a model wrote.

    The program is the prompt and its continuation, or a whole function where the text holds one. The prompt's
    own imports and helper functions also stand beside the tests, so that a program can't replace the helpers
    that judge it.
    """
    prompt, entry = text_of(fields, "prompt"), text_of(fields, "entry_point")
    answer = extract_code(text, entry)
    stub = prompt + "\n    pass\n"
    is_whole = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\b", answer, re.MULTILINE) is not None
    program = f"{stub}\n{answer}" if is_whole else prompt + continuation(answer)
    tests = f"{text_of(fields, 'test')}\n\ncheck({entry})\n"
    return CodeCase(program=program, tests=tests, names=(entry,), prelude=stub)


def mbpp_case(fields: Mapping[str, object], text: str) -> CodeCase:
    """The case of one MBPP record (code, test_list, and test_setup_code or test_imports) for a model's text.

    Raises:
        DataError: a field is missing or of the wrong type, or no Python; it is named.
    """
    setup = text_of(fields, "test_setup_code") if fields.get("test_setup_code") not in (None, "") else ""
    if not setup and fields.get("test_imports") not in (None, []):
        setup = "\n".join(texts_of(fields, "test_imports"))
    tests = "\n".join([setup, *texts_of(fields, "test_list")])
    reference = text_of(fields, "code")
    names = tested_names(reference, tests)
    free = _free_names(tests) - set(names)
    prelude = "\n".join(f"import {name}" for name in sorted(free & sys.stdlib_module_names))
    return CodeCase(program=extract_code(text, names[0]), tests=tests, names=names, prelude=prelude)


def tested_names(reference: str, tests: str) -> tuple[str, ...]:
    """The names that tests take from a program: those that they use and the reference solution defines."""
    defined = [node.name for node in _tree(reference).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    free = _free_names(tests)
    names = tuple(name for name in dict.fromkeys(defined) if name in free)
    names += tuple(sorted(free - set(names) - set(dir(builtins)) - sys.stdlib_module_names))
    if not names:
        raise DataError("a code task's tests use nothing that its reference solution defines")
    return names


def extract_code(text: str, name: str) -> str:
    """The code in a model's text: the fenced block that defines `name`, else the first one, else the text.

    A fence that only closes ends the code before it; one that only opens begins the code after it.
    """
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text
    if len(fences) == 1:
        before, after = text[: fences[0].start()], text[fences[0].end() :]
        bare = fences[0].group().strip() == "```"
        return before if _mentions(before, name) or (bare and not _mentions(after, name)) else after
    edges = [0, *(fence.end() for fence in fences)]
    ends = [*(fence.start() for fence in fences), len(text)]
    pieces = [text[start:end] for start, end in zip(edges, ends, strict=True)]
    inside = pieces[1::2]
    return next((piece for piece in [*inside, pieces[0]] if _mentions(piece, name)), inside[0])


def continuation(text: str) -> str:
    """What continues a function's body: the text up to where something else begins at the left margin."""
    found = _NEXT_THING.search(text)
    return text[: found.start()] if found else text


def _mentions(code: str, name: str) -> bool:
    return re.search(rf"^\s*(?:async\s+)?(?:def|class)\s+{re.escape(name)}\b", code, re.MULTILINE) is not None


def _tree(code: str) -> ast.Module:
    """The syntax tree of a data set's own code, whose odd escapes are its own business."""
    with refuse_as(DataError, "a code task's own code is no Python", SyntaxError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _free_names(code: str) -> set[str]:
    """Names that a module reads and doesn't itself bind."""
    nodes = [node for node in ast.walk(_tree(code)) if isinstance(node, ast.Name)]
    bound = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)} - bound

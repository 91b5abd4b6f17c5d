"""Reading and comparing mathematical answers.

Two answers are equal if they are the same string after light normalisation, or the same number, or if
math-verify judges them so (optional package, in a process of its own under a time limit, gold first). Whatever
can't be parsed is wrong, unless it is the very same string.
"""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from typing import Final

from calibudget.errors import DependencyError
from calibudget.tasks.answer_phrases import joined
from calibudget.tasks.number import number_value, parse_number
from calibudget.tasks.plain_text import closed, has_open_box, holds_prose, stated_answers
from calibudget.tasks.time_limits import ask

#: Seconds to wait for a comparison; its worker ends after far fewer of computing, whatever else the machine does.
_PATIENCE_S: Final = 600.0
#: Longest answer, in characters, that is worth parsing.
_MAX_LENGTH: Final = 2000


@lru_cache(maxsize=4096)
def judged_equal(gold: str, predicted: str) -> bool:
    """Whether math-verify parses both answers whole and finds them equal, gold first, within 10 s of computing.

    Prose is never given to it: it reads "listen" and "silent" as the same product of letters.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise DependencyError("comparing mathematical answers needs math-verify: pip install 'calibudget[math]'")
    if any(len(answer) > _MAX_LENGTH or holds_prose(answer) for answer in (gold, predicted)):
        return False
    return ask("math", [gold, predicted], _PATIENCE_S) is True


_TEXT_COMMAND: Final = re.compile(r"\\(?:text|mbox|mathrm|textbf|mathbf|textit|operatorname)\s*\{([^{}]*)\}")
_UNIT: Final = re.compile(r"(?<=[\d})])\s*\\(?:text|mbox|mathrm)\s*\{\s*[^{}]*\}(?:\^\{?[23]\}?)?\s*$")
_REMOVED: Final = re.compile(
    r"\\left(?![a-z])|\\right(?![a-z])|(?<!\\)\\[!,;: ]|\\displaystyle|\\quad|\^\{?\\circ\}?|\\?[$%]|~"
)
_SAME: Final = (
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("\\cfrac", "\\frac"),
    ("\\lbrace", "\\{"),
    ("\\rbrace", "\\}"),
)
_FORMULA: Final = re.compile(r"\$([^$]+)\$")
_SHORT_FRACTION: Final = re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)")


def parse_math(text: str) -> str | None:
    """The mathematical answer that a plain and parted text gives, as it writes it; None if it gives none.

    The last stated answer wins; a text that is nothing but one expression is its own answer; otherwise the last
    number counts, unless a box was left open: what it would have held isn't known.
    """
    text = closed(text)
    for stated in stated_answers(text):
        answer = stated.strip().rstrip(".,;").strip("* ")
        if answer and "boxed" not in text:
            answer = _without_prose(answer)
        if answer:
            return joined(answer).strip("$ ") or None
    bare = text.strip().rstrip(".").strip("$ ")
    if bare and "\n" not in bare and "boxed" not in bare and (len(bare.split()) == 1 or not holds_prose(bare)):
        return joined(bare)
    return None if has_open_box(text) else parse_number(text)


def _without_prose(answer: str) -> str:
    """What a sentence gives after "the answer is": its formula if it sets one, its number, or its words."""
    formula = _FORMULA.search(answer)
    if formula is None and holds_prose(answer):
        return parse_number(answer) or answer
    return formula[1] if formula else answer


def math_equal_at_sight(gold: str, predicted: str) -> bool | None:
    """Whether two mathematical answers are equal as strings or as numbers; None where math-verify has to say."""
    if light_form(gold) == light_form(predicted) or _equal_but_for_unit(gold, predicted):
        return True
    gold_value, predicted_value = number_value(light_form(gold)), number_value(light_form(predicted))
    if gold_value is not None and predicted_value is not None:
        return gold_value == predicted_value
    return None


def light_form(answer: str) -> str:
    r"""The answer without spacing commands, money, degree and percent signs, \left, \right and text wrappers."""
    form = _REMOVED.sub("", answer)
    for old, new in _SAME:
        form = form.replace(old, new)
    form = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", _TEXT_COMMAND.sub(r"\1", form))
    return re.sub(r"\s+", "", form).rstrip(".")


def _equal_but_for_unit(gold: str, predicted: str) -> bool:
    """Whether exactly one of the two names a unit and they are the same without it."""
    bare = [_UNIT.sub("", answer.strip()) for answer in (gold, predicted)]
    named = [bare[0] != gold.strip(), bare[1] != predicted.strip()]
    return named[0] != named[1] and light_form(bare[0]) == light_form(bare[1])

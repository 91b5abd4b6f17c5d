"""How records of the modern panel's six data sets become a prompt, a reference and a gold answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from calibudget.errors import DataError
from calibudget.evaluation.code_tasks import mbpp_case
from calibudget.evaluation.instructions import parse_instructions
from calibudget.tasks.answers import AnswerSpec, gold_answer
from calibudget.tasks.presets import text_of

Fields = Mapping[str, object]
#: What a text is compared with where its own checker judges it: nothing, and nothing of it is cut off.
WHOLE_TEXT: Final = AnswerSpec(kind="exact")
#: Stands where a data set has no reference response, since every record has one; its NLL is never reported.
NO_REFERENCE: Final = "."
_OPTION: Final = re.compile(r"^\(([A-Z])\) ", re.MULTILINE)
_WORDS: Final = (("True", "False"), ("Yes", "No"), ("yes", "no"), ("valid", "invalid"))
#: The last statement of an answer to its end, else the whole text.
_STATED: Final = AnswerSpec(kind="regex", pattern=r"(?is)\A(?:.*\banswer is\s*:?\s*)?(.*?)\s*\.?\s*\Z")
_NUMBER: Final = AnswerSpec(kind="number")
_MATH: Final = AnswerSpec(kind="math")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One record of a benchmark as the model meets it.

    Attributes:
        question: the data set's own question, by which the item is named and its like in a training set is known.
        reference: the response that would be right, or `NO_REFERENCE`.
        gold: the gold answer, None where the item has its own checker.
        answer: how a response is parsed and compared.
        own_id: the data set's own id, None to derive one from the text.
    """

    question: str
    prompt: str
    reference: str = NO_REFERENCE
    gold: str | None = None
    answer: AnswerSpec = WHOLE_TEXT
    own_id: str | None = None


#: From original fields to an item, or None for a record that the task doesn't ask.
Render = Callable[[Fields], Item | None]


def _id(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"the field {name!r} must hold an id, not {value!r:.80}")
    return str(value)


def bbh_item(fields: Fields) -> Item:
    """BBH: letters among lettered options, words, numbers, or the last stated answer in full, as the target is.

    Three records of the data set have a target that is none of their options; theirs is compared in full too.
    """
    question, target = text_of(fields, "input"), text_of(fields, "target").strip()
    letters = tuple(dict.fromkeys(_OPTION.findall(question)))
    words = next((pair for pair in _WORDS if target in pair), None)
    if len(letters) > 1 and target.strip("()") in letters:
        form, gold, answer = f"({letters[0]})", target.strip("()"), AnswerSpec(kind="choice", labels=letters)
    elif words is not None:
        form, gold, answer = words[0], target, AnswerSpec(kind="choice", labels=words)
    elif re.fullmatch(r"-?\d+", target):
        form, gold, answer = "7", gold_answer(_NUMBER, {}, target), _NUMBER
    else:
        form, gold, answer = "...", " ".join(target.split()), _STATED
    prompt = f"{question}\n\nEnd with the answer in this form: The answer is {form}."
    return Item(question=question, prompt=prompt, reference=f"The answer is {target}.", gold=gold, answer=answer)


def answer_of_gold(task: str, gold: str) -> AnswerSpec | None:
    """How an item's texts are parsed, by its gold answer alone.

    None for a letter of BBH, since the options are in the question.
    """
    if task != "bbh":
        return {"gsm_plus": _NUMBER, "math500": _MATH}[task]
    words = next((pair for pair in _WORDS if gold in pair), None)
    if words is not None:
        return AnswerSpec(kind="choice", labels=words)
    if re.fullmatch(r"-?\d+", gold):
        return _NUMBER
    return None if re.fullmatch("[A-Z]", gold) else _STATED


def gsm_plus_item(fields: Fields) -> Item | None:
    """GSM-Plus: the number; its "critical thinking" questions lack what a number would need and aren't asked."""
    answer = text_of(fields, "answer").strip()
    if answer == "None":
        return None
    gold = gold_answer(AnswerSpec(kind="number", field="answer"), fields, "")
    question = text_of(fields, "question")
    return Item(question=question, prompt=question, reference=text_of(fields, "solution"), gold=gold, answer=_NUMBER)


def math500_item(fields: Fields) -> Item:
    """MATH-500: the boxed or stated expression."""
    gold = gold_answer(AnswerSpec(kind="math", field="answer"), fields, "")
    problem = text_of(fields, "problem")
    return Item(question=problem, prompt=problem, reference=text_of(fields, "solution"), gold=gold, answer=_MATH)


def humaneval_item(fields: Fields) -> Item:
    """HumanEval: a function whose head and documentation are given."""
    prompt = text_of(fields, "prompt")
    text_of(fields, "test")
    if not text_of(fields, "entry_point").isidentifier():
        raise DataError(f"the field 'entry_point' must hold the name of a function, not {fields['entry_point']!r:.80}")
    task = "Complete this Python function. Answer with the whole function in one code block."
    return Item(
        question=prompt,
        prompt=f"{task}\n\n```python\n{prompt}```",
        own_id=_id(fields, "task_id"),
    )


def mbpp_item(fields: Fields) -> Item | None:
    """MBPP: a function described in words and by its first three tests; only the test split, tasks 11 to 510."""
    own_id = _id(fields, "task_id")
    if not own_id.isdecimal() or not 11 <= int(own_id) <= 510:
        return None
    mbpp_case(fields, "")
    tests = fields["test_list"]  # mbpp_case has seen it
    shown = "\n".join(map(str, tests[:3])) if isinstance(tests, list) else ""
    description = text_of(fields, "text" if fields.get("text") is not None else "prompt")
    return Item(
        question=description,
        prompt=f"{description} Answer with one Python code block. Your code should pass these tests:\n\n{shown}",
        own_id=own_id,
    )


def ifeval_item(fields: Fields) -> Item:
    """IFEval: the prompt as it stands."""
    parse_instructions(fields)
    prompt = text_of(fields, "prompt")
    own_id = _id(fields, "key")
    return Item(question=prompt, prompt=prompt, own_id=own_id)


#: The modern tasks' renderings by name.
RENDERINGS: Final[Mapping[str, Render]] = MappingProxyType(
    {
        "bbh": bbh_item,
        "gsm_plus": gsm_plus_item,
        "humaneval": humaneval_item,
        "ifeval": ifeval_item,
        "math500": math500_item,
        "mbpp": mbpp_item,
    }
)

r"""Known data sets: how their original fields become an instruction, a response and a gold answer.

The eight commonsense tasks follow the instruction format that the paper's training pool uses, character by
character; records that are already in that format (instruction, input, output, answer) pass unchanged. Which of
the two a record is, its fields decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from calibudget.errors import DataError, RecipeError
from calibudget.tasks.answers import AnswerSpec, gold_answer

Fields = Mapping[str, object]
#: Original fields to instruction, response and gold answer, None to parse that from the response.
Render = Callable[[Fields], tuple[str, str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A record as a preset renders it: texts as they stand, the gold answer as `parse_answer` would give it."""

    instruction: str
    response: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A known data set.

    Attributes:
        name: its name in recipes.
        answer: how its answers are parsed and compared.
        originals: the sets of original fields that it reads, any one of which is enough.
        render: makes the texts and the gold answer.
    """

    name: str
    answer: AnswerSpec
    originals: tuple[tuple[str, ...], ...]
    render: Render

    @property
    def converted(self) -> bool:
        """Whether records already in the instruction format are read too: only choices have one of their own."""
        return self.answer.kind == "choice"

    def __call__(self, fields: Fields) -> Rendered:
        """Render one record.

        Raises:
            DataError: the fields are neither the original ones nor the instruction format, one of them is empty
                or of the wrong type, a gold label is out of range, or answer and response disagree.
        """
        if self.converted and fields.get("instruction") is not None:
            return self._converted(fields)
        if not any(all(fields.get(name) is not None for name in names) for names in self.originals):
            raise DataError(f"the preset {self.name!r} needs {self._needs()}; {self._fault(fields)}")
        instruction, response, answer = self.render(fields)
        gold = gold_answer(self.answer, {}, response) if answer is None else answer
        if self.answer.kind == "choice" and gold not in self.answer.labels:
            raise DataError(f"the right answer, {gold}, is none of the preset's: {', '.join(self.answer.labels)}")
        return Rendered(instruction=instruction, response=response, answer=gold)

    def _converted(self, fields: Fields) -> Rendered:
        instruction, response = text_of(fields, "instruction"), text_of(fields, "output")
        extra = fields.get("input")
        if isinstance(extra, str) and extra.strip():
            instruction = f"{instruction}\n{extra}"
        answer = gold_answer(self.answer, fields, response)
        if fields.get("answer") is not None:
            given = gold_answer(replace(self.answer, field="answer"), fields, response)
            if given != answer:
                raise DataError(f"the response states {answer!r} but the field 'answer' holds {given!r}")
        return Rendered(instruction=instruction, response=response, answer=answer)

    def _needs(self) -> str:
        forms = [", ".join(names) for names in self.originals]
        return " or ".join(forms + (["instruction, output"] if self.converted else []))

    def _fault(self, fields: Fields) -> str:
        """What a record lacks: a value where a form's fields are all there, else a field of every form."""
        whole = [names for names in self.originals if all(name in fields for name in names)]
        null = [name for names in whole for name in names if fields[name] is None]
        return f"the record's {null[0]!r} is null" if null else f"the record has {', '.join(fields)}"


def preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise RecipeError(f"preset: {name!r} is unknown; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def text_of(fields: Fields, name: str) -> str:
    """A field that must hold text, and not blank."""
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"the field {name!r} must hold text, not {value!r:.80}")
    return value


def texts_of(fields: Fields, name: str, within: str = "") -> list[str]:
    """A field that must hold texts, at least one and none blank; `within` stands before its name in the message."""
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item.strip() for item in value):
        raise DataError(f"the field {within + name!r} must hold a list of texts, not {value!r:.80}")
    return value


def _index(fields: Fields, name: str, choices: int, *, first: int) -> int:
    """The 0-based position that a numeric label names, counted in the data from `first`."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip().isdecimal():
        raise DataError(
            f"the label {name!r} must be a number from {first} to {first + choices - 1}, not {value!r:.80}"
            f"{_hidden(value)}"
        )
    position = int(value) - first
    if not 0 <= position < choices:
        raise DataError(f"the label {name!r} must lie between {first} and {first + choices - 1}, not {value!r}")
    return position


def _hidden(value: object) -> str:
    """What to say further of a label that stands where hubs hide the real ones."""
    is_hidden = not isinstance(value, bool) and isinstance(value, int | str) and str(value).strip() in {"-1", ""}
    return "; that looks like the hidden label of a test split: take a split with labels" if is_hidden else ""


def _states(answer: str) -> tuple[str, str]:
    return f"the correct answer is {answer}", answer


def _listed(word: str, choices: list[str], separator: str = " ") -> str:
    return separator.join(f"{word}{number}: {choice}" for number, choice in enumerate(choices, start=1))


def _formats(word: str, count: int) -> str:
    return "Answer format: " + "/".join(f"{word}{number}" for number in range(1, count + 1))


def _boolq(fields: Fields) -> tuple[str, str, str]:
    question = text_of(fields, "question").strip().removesuffix("?")
    value = fields["answer"] if fields.get("answer") is not None else fields.get("label")
    if value not in (True, False, "true", "false", "True", "False", "1", "0"):
        raise DataError(f"the answer of BoolQ must be true or false, not {value!r:.80}{_hidden(value)}")
    answer = "true" if value in (True, "true", "True", "1") else "false"
    instruction = f"Please answer the following question with true or false, question: {question}?"
    return (f"{instruction}\n\nAnswer format: true/false", *_states(answer))


def _piqa(fields: Fields) -> tuple[str, str, str]:
    solutions = [text_of(fields, "sol1"), text_of(fields, "sol2")]
    instruction = (
        f"Please choose the correct solution to the question: {text_of(fields, 'goal')}\n\n"
        + _listed("Solution", solutions, "\n\n")
        + f"\n\n{_formats('solution', 2)}"
    )
    return (instruction, *_states(f"solution{_index(fields, 'label', 2, first=0) + 1}"))


def _question(question: str, choices: list[str]) -> str:
    return (
        f"Please choose the correct answer to the question: {question}\n\n"
        f"{_listed('Answer', choices)}\n\n{_formats('answer', len(choices))}"
    )


def _social_i_qa(fields: Fields) -> tuple[str, str, str]:
    choices = [text_of(fields, name) for name in ("answerA", "answerB", "answerC")]
    question = f"{text_of(fields, 'context')} {text_of(fields, 'question')}"
    return (_question(question, choices), *_states(f"answer{_index(fields, 'label', 3, first=1) + 1}"))


def _hellaswag(fields: Fields) -> tuple[str, str, str]:
    endings = texts_of(fields, "endings")
    context = text_of(fields, "ctx")
    if fields.get("activity_label") is not None:
        context = f"{text_of(fields, 'activity_label')}: {context}"
    instruction = (
        f"Please choose the correct ending to complete the given sentence: {context}\n\n"
        f"{_listed('Ending', endings)}\n\n{_formats('ending', len(endings))}"
    )
    return (instruction, *_states(f"ending{_index(fields, 'label', len(endings), first=0) + 1}"))


def _winogrande(fields: Fields) -> tuple[str, str, str]:
    options = [text_of(fields, "option1"), text_of(fields, "option2")]
    instruction = (
        "Please choose the correct answer to fill in the blank to complete the given sentence: "
        f"{text_of(fields, 'sentence')}\n\n{_listed('Option', options)} {_formats('option', 2)}"
    )
    return (instruction, *_states(f"option{_index(fields, 'answer', 2, first=1) + 1}"))


def _science(fields: Fields) -> tuple[str, str, str]:
    """ARC and OpenBookQA: a stem, lettered or numbered choices and the key of the right one."""
    nested = fields.get("question")
    holder = nested if isinstance(nested, Mapping) else fields
    stem = holder.get("stem", holder.get("question_stem", holder.get("question")))
    texts, keys = _keyed_choices(holder.get("choices"))
    key = str(fields.get("answerKey")).strip()
    if key not in keys:
        raise DataError(f"the answer key {key!r} is none of the choices' keys {', '.join(keys)}{_hidden(key)}")
    question = text_of({"question": stem}, "question")
    return (_question(question, texts), *_states(f"answer{keys.index(key) + 1}"))


def _keyed_choices(choices: object) -> tuple[list[str], list[str]]:
    """Texts and keys of choices given as two lists (the hub's form) or as a list of pairs (AI2's own)."""
    if isinstance(choices, list) and all(isinstance(choice, Mapping) for choice in choices):
        choices = {name: [choice.get(name) for choice in choices] for name in ("text", "label")}
    if not isinstance(choices, Mapping):
        raise DataError(f"the field 'choices' must hold texts and labels, not {choices!r:.80}")
    texts, keys = texts_of(choices, "text", "choices."), texts_of(choices, "label", "choices.")
    if len(texts) != len(keys) or len(set(keys)) != len(keys) or not 2 <= len(keys) <= len(_ANSWERS.labels):
        raise DataError(f"the choices must be 2 to {len(_ANSWERS.labels)} texts with a label each: {choices!r:.80}")
    return texts, keys


def _gsm8k(fields: Fields) -> tuple[str, str, None]:
    return text_of(fields, "question"), text_of(fields, "answer"), None


def _math(fields: Fields) -> tuple[str, str, str | None]:
    """MATH and its kin: the solution is the response; where there is only an answer, the answer is."""
    instruction = text_of(fields, "problem" if fields.get("problem") is not None else "question")
    if fields.get("solution") is None:
        answer = text_of(fields, "answer")
        return instruction, answer, None if "\\boxed" in answer else answer.strip()
    solution = text_of(fields, "solution")
    given = fields.get("answer")
    if given is None:
        return instruction, solution, None
    return instruction, solution, gold_answer(replace(_MATH, field="answer"), {"answer": given}, solution)


def _choice(word: str, count: int) -> AnswerSpec:
    return AnswerSpec(kind="choice", labels=tuple(f"{word}{number}" for number in range(1, count + 1)))


_ANSWERS: Final = _choice("answer", 5)
_MATH: Final = AnswerSpec(kind="math")
_KEYED: Final = (
    ("question", "choices", "answerKey"),
    ("question_stem", "choices", "answerKey"),
    ("question", "answerKey"),
)

#: Of each data set: its answers, the sets of fields that it may have, and how these are rendered.
_KNOWN: Final[Mapping[str, tuple[AnswerSpec, tuple[tuple[str, ...], ...], Render]]] = {
    "arc_challenge": (_ANSWERS, _KEYED, _science),
    "arc_easy": (_ANSWERS, _KEYED, _science),
    "boolq": (
        AnswerSpec(kind="choice", labels=("true", "false")), (("question", "answer"), ("question", "label")), _boolq,
    ),
    "gsm8k": (AnswerSpec(kind="number"), (("question", "answer"),), _gsm8k),
    "hellaswag": (_choice("ending", 4), (("ctx", "endings", "label"),), _hellaswag),
    "math": (_MATH, (("problem", "solution"), ("problem", "answer"), ("question", "answer")), _math),
    "openbookqa": (_choice("answer", 4), _KEYED, _science),
    "piqa": (_choice("solution", 2), (("goal", "sol1", "sol2", "label"),), _piqa),
    "social_i_qa": (
        _choice("answer", 3), (("context", "question", "answerA", "answerB", "answerC", "label"),), _social_i_qa,
    ),
    "winogrande": (_choice("option", 2), (("sentence", "option1", "option2", "answer"),), _winogrande),
}  # fmt: skip
#: The presets by name.
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        name: Preset(name=name, answer=answer, originals=originals, render=render)
        for name, (answer, originals, render) in _KNOWN.items()
    }
)

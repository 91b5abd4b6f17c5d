"""IFEval's verifiable instructions, strict and deterministic: the same text gets the same verdict everywhere.

Most checkers are those of the package if-verifiable, a copy of the data set authors' code. Six are ours, because
the originals ask a language detector that draws lots, or a sentence model that is downloaded at run time, or look for
a letter drawn at random where a record names another character:
languages go by a detector with a fixed seed and fixed profile order, sentences by the authors' own splitting rules,
words by the tokenizer's rules without a model, characters as they are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeGuard

from calibudget.errors import DataError, requires

#: Version of these checkers; part of the evidence.
CHECKER_VERSION: Final = "2"

_RELATIONS: Final = ("less than", "at least")
#: Arguments that are lists of texts, and those that the data set's checkers put into regular expressions as they stand.
_LISTS: Final = ("keywords", "forbidden_words")
_PATTERNS: Final = (*_LISTS, "keyword", "section_spliter", "postscript_marker")

Arguments = Mapping[str, Any]


def check_instructions(fields: Mapping[str, object], text: str) -> list[str]:
    """The instructions of one IFEval record that a response doesn't follow; an empty one follows none."""
    prompt = str(fields.get("prompt"))
    instructions = parse_instructions(fields)
    return [name for name, arguments in instructions if not text.strip() or not _follows(name, arguments, prompt, text)]


def parse_instructions(fields: Mapping[str, object]) -> list[tuple[str, dict[str, Any]]]:
    """The record's instructions, each with its arguments.

    Raises:
        DataError: names and arguments that don't fit together, an unknown instruction, or one without an argument
            that it needs (the checkers would draw a value at random), or with one that it can't be checked by.
        DependencyError: if-verifiable isn't installed.
    """
    names, arguments = fields.get("instruction_id_list"), fields.get("kwargs")
    if not _is_list(names) or not _is_list(arguments) or len(names) != len(arguments) or not names:
        raise DataError("an IFEval record needs instruction_id_list and kwargs, lists of one length, at least 1")
    found = [(str(name), _given(own)) for name, own in zip(names, arguments, strict=True)]
    for name, own in found:
        needed: list[str] = _checker(name)(name).get_instruction_args_keys()
        missing = [key for key in needed if key not in own]
        if missing:
            raise DataError(f"the IFEval instruction {name!r} lacks its argument {missing[0]!r}")
        for key, value in own.items():
            expected = _argument_fault(own, key) if key in needed else "absent"
            if expected:
                raise DataError(
                    f"kwargs: {key!r} of the IFEval instruction {name!r} must be {expected}, not {value!r:.80}"
                )
    return found


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _argument_fault(arguments: Arguments, key: str) -> str | None:
    """What an argument must be, where it isn't; the checkers would fail on another, or draw a number at random."""
    value = arguments[key]
    if key.endswith("relation"):
        return None if value in _RELATIONS else " or ".join(map(repr, _RELATIONS))
    if key.startswith("num_") or key.endswith("frequency") or key == "nth_paragraph":
        least, most = (1, arguments.get("num_paragraphs")) if key == "nth_paragraph" else (0, None)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if is_count and (not isinstance(most, int) or value <= most):
            return None
        return "a paragraph's number, from 1 to num_paragraphs" if least else "an integer of at least 0"
    texts = value if key in _LISTS else [value]
    if not _is_list(texts) or not texts or not all(isinstance(one, str) and one.strip() for one in texts):
        return "a list of texts" if key in _LISTS else "text"
    return (
        None if key not in _PATTERNS or all(map(_compiles, texts)) else "a regular expression, as the checker reads it"
    )


def _compiles(pattern: object) -> bool:
    try:
        re.compile(str(pattern))
    except re.error:
        return False
    return True


def _given(arguments: object) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):
        raise DataError(f"the arguments of an IFEval instruction must be an object, not {arguments!r:.80}")
    return {str(key): value for key, value in arguments.items() if value is not None}


def _follows(name: str, arguments: Arguments, prompt: str, text: str) -> bool:
    if name in _OWN:
        return _OWN[name](arguments, text)
    checker = _checker(name)(name)
    checker.build_description(**arguments)
    if "prompt" in (checker.get_instruction_args() or {}):
        checker.build_description(prompt=prompt)
    return bool(checker.check_following(text))


def _checker(name: str) -> Any:
    known = _library("if_verifiable.ifeval.instructions_registry").INSTRUCTION_DICT
    if name not in known:
        raise DataError(f"the IFEval instruction {name!r} is unknown")
    return known[name]


def _library(name: str) -> Any:
    with requires("IFEval", "eval"):
        return import_module(name)


@cache
def _language_detector() -> Any:
    """A detector factory whose answers depend on the text alone: one seed, profiles in the order of their names."""
    library = _library("langdetect.detector_factory")
    factory = library.DetectorFactory()
    profiles = sorted(path for path in Path(library.PROFILES_DIRECTORY).iterdir() if path.is_file())
    factory.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    factory.set_seed(0)
    return factory


def detect_language(text: str) -> str | None:
    """The language of a text as langdetect names it, or None where it has nothing to go by."""
    error = _library("langdetect.lang_detect_exception").LangDetectException
    detector = _language_detector().create()
    detector.append(text)
    try:
        return str(detector.detect())
    except error:
        return None


def _is_language(text: str, language: object) -> bool:
    """Whether it is, or can't be told, which the data set's authors count as followed."""
    return detect_language(text) in (language, None)


def _compares(count: int, relation: object, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _sentences(arguments: Arguments, text: str) -> bool:
    split = _library("if_verifiable.ifeval.instructions_util").split_into_sentences
    count = sum(1 for sentence in split(text) if sentence.strip())
    return _compares(count, arguments["relation"], arguments["num_sentences"])


def _capital_words(arguments: Arguments, text: str) -> bool:
    words = _library("nltk.tokenize").NLTKWordTokenizer().tokenize(re.sub(r"([.!?])(\s)", r" \1\2", text))
    count = sum(1 for word in words if word.isupper())
    return _compares(count, arguments["capital_relation"], arguments["capital_frequency"])


def _letters(arguments: Arguments, text: str) -> bool:
    count = text.lower().count(arguments["letter"].strip().lower())
    return _compares(count, arguments["let_relation"], arguments["let_frequency"])


_OWN: Final[Mapping[str, Callable[[Arguments, str], bool]]] = {
    "language:response_language": lambda arguments, text: _is_language(text, arguments["language"]),
    "change_case:english_capital": lambda _, text: text.isupper() and _is_language(text, "en"),
    "change_case:english_lowercase": lambda _, text: text.islower() and _is_language(text, "en"),
    "length_constraints:number_sentences": _sentences,
    "change_case:capital_word_frequency": _capital_words,
    "keywords:letter_frequency": _letters,
}

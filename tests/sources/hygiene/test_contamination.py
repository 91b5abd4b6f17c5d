"""Shared runs of words, against an oracle that compares tuples of words."""

from __future__ import annotations

import random

import pytest

from calibudget.records import Record
from calibudget.sources.hygiene import contamination
from calibudget.sources.hygiene.contamination import EvaluationWords, words
from calibudget.sources.identity import digests
from tests.conftest import record_of


def record(prompt: str, completion: str = "yes") -> Record:
    return record_of(prompt=prompt, completion=completion)  # type: ignore[no-any-return]


def looked_up(
    records: list[Record], evaluation: dict[str, list[Record]], ngram: int
) -> dict[str, tuple[set[int], int]]:
    """By evaluation set, the places of the records that meet it, and how many of its records they meet."""
    found = EvaluationWords(evaluation, ngram).look_up(iter(records))
    names = [digests(one.prompt, one.completion)[0] for one in records]
    return {
        name: ({at for at, one in enumerate(names) if one in met.digests}, met.others) for name, met in found.items()
    }


def runs(one: Record, ngram: int) -> set[tuple[str, ...]]:
    texts = [words(one.prompt[0].content), words(one.completion)]
    found = {tuple(text[at : at + ngram]) for text in texts for at in range(len(text) - ngram + 1)}
    return found | ({("whole", *texts[0])} if 0 < len(texts[0]) < ngram else set())


@pytest.mark.parametrize("ngram", [1, 3, 5])
def test_runs_are_those_of_an_oracle(monkeypatch: pytest.MonkeyPatch, ngram: int) -> None:
    monkeypatch.setattr(contamination, "_CHUNK", 7)
    draw = random.Random(ngram)  # noqa: S311

    def text(longest: int) -> str:
        return " ".join(draw.choice("abcdef") for _ in range(draw.randrange(1, longest)))

    evaluation = {name: [record(text(9), text(4)) for _ in range(9)] for name in ("one", "two")}
    records = [record(text(12), text(6)) for _ in range(60)]
    expected = {}
    for name, items in evaluation.items():
        own = [runs(item, ngram) for item in items]
        met = {at for at, one in enumerate(records) if any(runs(one, ngram) & item for item in own)}
        others = sum(any(runs(one, ngram) & item for one in records) for item in own)
        if met:
            expected[name] = (met, others)
    assert looked_up(records, evaluation, ngram) == expected


def test_case_punctuation_and_spacing_do_not_part_runs() -> None:
    question = "What did the old sailor say to the young captain before the storm broke out at sea?"
    copy = question.upper().replace(" ", " \n ").replace("?", " ...")
    assert looked_up([record("So: " + copy), record("another question")], {"exam": [record(question)]}, 13) == {
        "exam": ({0}, 1)
    }


def test_a_response_that_holds_an_evaluation_prompt_is_found() -> None:
    question = " ".join(f"word{n}" for n in range(20))
    assert looked_up([record("Repeat.", question)], {"exam": [record(question)]}, 13) == {"exam": ({0}, 1)}


def test_short_prompts_are_compared_whole_and_texts_without_words_never() -> None:
    evaluation = {"exam": [record("Is water wet?"), record("???"), record("!")]}
    records = [record("is WATER wet"), record("Is water wet? I mean it."), record("..."), record("?", "is water wet")]
    assert looked_up(records, evaluation, 13) == {"exam": ({0}, 1)}


def test_the_form_of_an_evaluation_set_is_no_evidence() -> None:
    form = "Please answer the following question with true or false and no more, question: {} Format: true or false"
    evaluation = {"exam": [record(form.format(f"is number {n} larger than {n}{n}")) for n in range(40)]}
    records = [record(form.format(f"are {n} apples red")) for n in range(5)]
    records += [record(form.format("is number 7 larger than 77"))]
    assert looked_up(records, evaluation, 13) == {"exam": ({5}, 1)}
    assert looked_up(records, {"exam": evaluation["exam"][:9]}, 13)["exam"][0] == set(range(6))  # too few to see a form


@pytest.mark.slow
def test_scripts_without_spaces_are_compared_by_character() -> None:
    question = "日本の首都はどこですか、教えてください"
    records = [record(f"質問 {question}。"), record("日本の食べ物は何ですか")]
    assert looked_up(records, {"exam": [record(question)]}, 13) == {"exam": ({0}, 1)}


def test_equal_values_of_different_runs_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contamination, "_FACTOR", contamination.np.uint64(1))  # type: ignore[attr-defined]  # then a run's value is a sum
    evaluation = {"exam": [record("a b c d e")]}
    assert looked_up([record("e d c b a"), record("x a b c d e")], evaluation, 5) == {"exam": ({1}, 1)}

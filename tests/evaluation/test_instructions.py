# ruff: noqa: E501

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError, DependencyError
from calibudget.evaluation import instructions
from calibudget.evaluation.instructions import check_instructions, detect_language, parse_instructions

pytestmark = [
    pytest.mark.slow,  # importing the checkers takes seconds
    pytest.mark.skipif(find_spec("if_verifiable") is None, reason="if-verifiable isn't installed"),
]


def record(name: str, prompt: str = "Write.", **arguments: object) -> dict[str, object]:
    return {"prompt": prompt, "instruction_id_list": [name], "kwargs": [arguments]}


def test_four_chinese_characters_get_one_verdict() -> None:  # google-research issue 3427
    fields = record("language:response_language", language="zh-cn")
    assert {tuple(check_instructions(fields, "\u4f60\u597d\u4e16\u754c")) for _ in range(200)} == {()}
    assert detect_language("\u4f60\u597d\u4e16\u754c") == "zh-cn"


def test_verdicts(subtests: pytest.Subtests) -> None:
    for fields, text, follows in [
        (record("punctuation:no_comma"), "No such mark here.", True),
        (record("punctuation:no_comma"), "One, here.", False),
        (record("length_constraints:number_words", relation="at least", num_words=3), "one two three", True),
        (record("length_constraints:number_words", relation="less than", num_words=3), "one two three", False),
        (
            record("length_constraints:number_sentences", relation="at least", num_sentences=3),
            "Bees hum. Cats purr! Do emus fly?",
            True,
        ),
        (record("change_case:english_capital"), "ALL OF THIS IS WRITTEN IN CAPITAL LETTERS.", True),
        (record("change_case:english_capital"), "NEARLY ALL OF THIS is IN CAPITAL LETTERS.", False),
        (
            record("change_case:english_lowercase"),
            "dies ist auf jeden fall ein deutscher satz und kein anderer.",
            False,
        ),
        (
            record("change_case:capital_word_frequency", capital_relation="at least", capital_frequency=2),
            "NASA and ESA.",
            True,
        ),
        (record("language:response_language", language="de"), "Das ist ein deutscher Satz und nichts anderes.", True),
        (record("language:response_language", language="fr"), "Das ist ein deutscher Satz und nichts anderes.", False),
        (record("combination:repeat_prompt", prompt_to_repeat="Say hi."), "Say hi. Hi!", True),
        (record("detectable_format:title"), "<<poem of joy>> Text", True),
        (record("punctuation:no_comma"), "", False),
        (record("punctuation:no_comma"), " \n", False),
    ]:
        with subtests.test(fields=fields, text=text, follows=follows):
            assert (check_instructions(fields, text) == []) is follows


def test_a_record_that_would_be_checked_at_random_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (record("keywords:unknown"), "unknown"),
        (record("language:response_language"), "lacks its argument 'language'"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "one length"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": ["x"]}, "must be an object"),
    ]
    for fields, message in cases:
        with subtests.test(message=message), pytest.raises(DataError, match=message):
            parse_instructions(fields)


def test_a_missing_package_is_named_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(instructions, "import_module", missing)
    with pytest.raises(DependencyError, match=r"calibudget\[eval\]"):
        parse_instructions(record("punctuation:no_comma"))


def test_the_character_that_is_named_is_counted(subtests: pytest.Subtests) -> None:
    """The original looks for a letter drawn at random where the character is no letter, as two records of IFEval have it."""
    for letter in ["#", "!", "e", "E"]:
        with subtests.test(letter=letter):
            asked = record("keywords:letter_frequency", letter=letter, let_relation="at least", let_frequency=3)
            for _ in range(5):
                assert check_instructions(asked, f"a {letter} b {letter} c {letter}") == []
                assert check_instructions(asked, f"a {letter} b {letter}") == ["keywords:letter_frequency"]


@pytest.mark.data
def test_every_real_record_can_be_checked_twice_alike(data_dir: Path) -> None:
    with gzip.open(data_dir / "modern" / "ifeval.test.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    texts = ["Hello WORLD, this is a text.\n\nSecond paragraph! Really?", "\u4f60\u597d", "P.S. *a* ***\n* one\n* two"]
    first = [[check_instructions(row, text) for text in texts] for row in rows]
    assert first == [[check_instructions(row, text) for text in texts] for row in rows]
    assert any(not missed for one in first for missed in one)

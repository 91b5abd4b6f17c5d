"""Which held-out answers can be known by heart."""

from __future__ import annotations

import pytest

from testbed.answers import known_answers, normal_answer


def test_an_answer_is_known_by_half_of_it(subtests: pytest.Subtests) -> None:
    for trained, held_out, known in [
        (["the quick brown fox"], ["The  quick\nbrown FOX"], True),
        (["12"], ["12"], True),
        (["1 2 3"], ["1 2 4"], False),  # too short for parts to say anything
        (["so we beat on boats against the current"], ["beat on boats against"], True),
        (["so we beat on"], ["so we beat on boats against the current"], True),
        (["so we beat"], ["so we beat on boats against the current"], False),
        (["we beat so on boats current the against"], ["so we beat on boats against the current"], False),
        (["a b c d x x x x"], ["a b c d e f g h i"], False),  # four of nine are fewer than half
        ([], ["anything at all here"], False),
    ]:
        with subtests.test(known=known):
            assert known_answers(trained, held_out) == (held_out if known else [])


def test_only_known_ones_are_named_in_their_order() -> None:
    assert known_answers(["one two three four", "7"], ["8", "one two three four five", "7"]) == [
        "one two three four five",
        "7",
    ]
    assert normal_answer(" Ä\tB ") == "ä b"

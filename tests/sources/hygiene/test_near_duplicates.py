"""Near-duplicates: what is planted is found, what isn't alike stays, and no order matters."""

from __future__ import annotations

import random

import pytest

from calibudget.records import Record
from calibudget.sources.hygiene.near_duplicates import NearDuplicates
from calibudget.sources.identity import digests
from calibudget.sources.spec import NearDuplicatesRule
from tests.conftest import record_of

pytest.importorskip("datasketch")
RULE = NearDuplicatesRule()


def record(prompt: str, completion: str = "yes") -> Record:
    return record_of(prompt=prompt, completion=completion)  # type: ignore[no-any-return]


def sentence(draw: random.Random, length: int = 60) -> list[str]:
    return [f"w{draw.randrange(500)}" for _ in range(length)]


def text_of(one: Record) -> bytes:
    return digests(one.prompt, one.completion)[0]


def test_planted_copies_are_found_within_across_and_against_evaluation() -> None:
    draw = random.Random(0)  # noqa: S311
    plain = [sentence(draw) for _ in range(40)]

    def changed(number: int) -> Record:
        return record(" ".join([*plain[number][:-1], "changed"]))

    exam = [record(" ".join(plain[n])) for n in range(5)]
    one = [record(" ".join(plain[n])) for n in range(10, 20)] + [changed(0), changed(10)]
    two = [record(" ".join(plain[n])) for n in range(20, 30)] + [changed(1), changed(11)]
    found = {}
    for shuffled in (False, True):
        if shuffled:
            for records in (exam, one, two):
                draw.shuffle(records)
        near = NearDuplicates(RULE)
        near.add("evaluation exam", iter(exam))
        found[shuffled] = near.look_up("source one", iter(one)), near.look_up("source two", iter(two))
    assert found[False] == found[True]
    first, second = found[True]
    assert {other: (len(met.digests), met.others) for other, met in first.items()} == {
        "evaluation exam": (1, 1),
        "source one": (1, 1),
    }
    assert first["evaluation exam"].digests == {text_of(changed(0))}
    assert {other: len(met.digests) for other, met in second.items()} == {"evaluation exam": 1, "source one": 1}


def test_short_and_wordless_texts_and_equal_ones() -> None:
    near = NearDuplicates(RULE)
    assert near.look_up("source one", [record("?", "!"), record("..", "!"), record("a", "b"), record("a", "b")]) == {}
    assert set(near.look_up("source two", [record("A!", "b"), record("c", "d")])) == {"source one"}


def test_the_seed_and_the_threshold_are_the_rules() -> None:
    draw = random.Random(1)  # noqa: S311
    words = sentence(draw, 40)
    records = [record(" ".join(words)), record(" ".join([*words[:30], *sentence(draw, 10)]))]
    strict = NearDuplicates(NearDuplicatesRule(threshold=0.95)).look_up("source one", records)
    loose = NearDuplicates(NearDuplicatesRule(threshold=0.4, permutations=256)).look_up("source one", records)
    assert (strict, list(loose)) == ({}, ["source one"])


def test_what_is_found_is_what_brute_force_counts_but_for_the_estimates_error() -> None:
    """Every pair compared by its runs of three words: 600 records, each a changed copy of one of 600 others."""
    draw = random.Random(2)  # noqa: S311
    originals = [sentence(draw) for _ in range(600)]
    copies = []
    for words in originals:
        changed = draw.randrange(13)
        at = draw.randrange(len(words) - changed)  # words in a row: 60 words, so similarities from 1 to 0.6
        copies.append([*words[:at], *(f"n{draw.randrange(10**6)}" for _ in range(changed)), *words[at + changed :]])

    def runs(words: list[str]) -> set[tuple[str, ...]]:
        whole = [*words, "yes"]
        return {tuple(whole[at : at + RULE.ngram]) for at in range(len(whole) - RULE.ngram + 1)}

    known = [runs(words) for words in originals]

    def nearest(words: list[str]) -> float:
        own = runs(words)
        return max(len(own & other) / len(own | other) for other in known)

    exact = {text_of(record(" ".join(words))): nearest(words) for words in copies}
    near = NearDuplicates(RULE)
    near.add("evaluation exam", (record(" ".join(words)) for words in originals))
    found = near.look_up("source one", (record(" ".join(words)) for words in copies))["evaluation exam"].digests
    error = (RULE.threshold * (1 - RULE.threshold) / RULE.permutations) ** 0.5
    assert {text for text, likeness in exact.items() if likeness > RULE.threshold + 4 * error} <= found
    assert not {text for text in found if exact[text] < RULE.threshold - 4 * error}
    counted = sum(likeness >= RULE.threshold for likeness in exact.values())
    assert 100 < counted < 500
    assert abs(len(found) - counted) <= 0.15 * counted

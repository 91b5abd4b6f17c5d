"""Everything that proxy scores are refused for; each case is a valid set with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyContract, ProxyScores, proxy_pool
from calibudget.selection.proxy_checks import check_merged, check_pool, check_shard, merge_shards

POOLS = {"boolq": [f"b{i}" for i in range(9)], "piqa": [f"p{i}" for i in range(4)]}


@pytest.fixture
def shards(make_shards: Callable[..., Any]) -> list[ProxyScores]:
    return make_shards(POOLS)  # type: ignore[no-any-return]


def with_record(scores: ProxyScores, index: int, **changes: Any) -> ProxyScores:
    records = list(scores.records)
    records[index] = replace(records[index], **changes)
    return replace(scores, records=tuple(records))


def with_header(scores: ProxyScores, **changes: Any) -> ProxyScores:
    return replace(scores, header=replace(scores.header, **changes))


def test_a_valid_set_passes_every_check(shards: Any) -> None:
    for shard in shards:
        check_shard(shard)
    merged = merge_shards(shards)
    check_merged(merged)
    check_pool(merged, proxy_pool(POOLS))
    assert merged.header.shard is None
    assert sorted(record.position for record in merged.records) == list(range(13))


def test_a_pool_of_one_and_shards_of_which_some_are_empty_pass(make_shards: Callable[..., Any]) -> None:
    shards = make_shards({"boolq": ["b"]})
    assert [len(shard.records) for shard in shards] == [1, 0, 0, 0]
    check_pool(merge_shards(shards), proxy_pool({"boolq": ["b"]}))


def test_the_order_of_shards_and_of_records_in_a_shard_plays_no_role(shards: Any) -> None:
    turned = [replace(shard, records=shard.records[::-1]) for shard in shards[::-1]]
    assert merge_shards(turned) == merge_shards(shards)


def test_another_frozen_order_and_shard_count_hold_when_the_contract_says_so(make_shards: Callable[..., Any]) -> None:
    contract = ProxyContract(subgroups=("b", "a"), shards=3)
    shards = make_shards(POOLS, contract=contract)
    check_merged(merge_shards(shards, contract=contract), contract=contract)
    with pytest.raises(ArtefactError, match="subgroups must be arc_challenge"):
        merge_shards(shards)
    with pytest.raises(ArtefactError, match="scored in 3 shards, expected were 4"):
        merge_shards(shards, contract=replace(contract, shards=4))


SWAPPED = (PAPER_SUBGROUPS[1], PAPER_SUBGROUPS[0], *PAPER_SUBGROUPS[2:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position": -3}, "position -3 is outside the pool of 13"),
        ({"position": 13}, "position 13 is outside the pool of 13"),
        ({"position": 2**53 - 1}, "position 9007199254740991 is outside the pool of 13"),
        ({"position": 5}, "position 5 is given twice"),
        ({"position": 10}, "position 10 belongs to shard 2, not 1 of 4"),
        ({"source": "boolq", "record_id": "b5"}, "position 9 repeats the candidate 'b5' of boolq"),
        ({"record_id": ""}, "position 9 has no source or no record id"),
        (
            {"subgroups": SWAPPED},
            "has drifted: the subgroups must be arc_challenge, arc_easy, boolq.* not arc_easy, arc_challenge, ",
        ),
        ({"subgroups": ()}, "position 9 has drifted: .* not none"),
        ({"subgroup_means": (0.5,) * 7, "score": 0.5}, "has 7 subgroup means for 8 subgroups"),
        ({"subgroup_means": (0.5,) * 7 + (float("nan"),), "score": 0.5}, "the mean nan for winogrande"),
        ({"subgroup_means": (float("-inf"),) + (0.5,) * 7, "score": 0.5}, "the mean -inf for arc_challenge"),
        ({"score": float("nan")}, "the score nan, but its largest subgroup mean is"),
        ({"score": 0.8181818181818183}, r"the score 0\.8181818181818183, but its largest .* 0\.8181818181818182"),
    ],
)
def test_a_record_that_is_not_in_order_is_refused(shards: Any, changes: Any, message: str) -> None:
    shards[1] = with_record(shards[1], 2, **changes)  # position 9, the first of piqa
    with pytest.raises(ArtefactError, match=message):
        check_shard(shards[1])
    with pytest.raises(ArtefactError, match=f"two: .*{message}"):
        merge_shards(shards, names=("one", "two", "three", "four"))


def test_a_score_is_one_of_its_means_bit_for_bit(make_shards: Callable[..., Any]) -> None:
    shard = make_shards(POOLS, means=lambda _, __: -0.0)[1]
    check_shard(shard)
    with pytest.raises(ArtefactError, match=r"position 9 has the score 0\.0, but its largest subgroup mean is -0\.0"):
        check_shard(with_record(shard, 2, score=0.0))


def test_files_are_named_with_what_to_do(shards: Any, make_shards: Callable[..., Any]) -> None:
    names = ("one", "two", "three", "four")
    with pytest.raises(
        ArtefactError, match=r"^one: scored in 4 shards, expected were 2; if 4 is right, say .*--shards 4"
    ):
        merge_shards(shards, contract=ProxyContract(shards=2), names=names)
    with pytest.raises(ArtefactError, match=r"\(one is shard 0, two is shard 1\); give the file of shard 2 too$"):
        merge_shards(shards[:2], names=names[:2])
    with pytest.raises(ArtefactError, match=r"four is shard 0\); give the file of shard 3 too$"):
        merge_shards([*shards[:3], shards[0]], names=names)
    other = make_shards(POOLS, provenance={"model": "other"})
    with pytest.raises(ArtefactError, match=r"^one and four differ in provenance"):
        merge_shards([*shards[:3], other[3]], names=names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subgroups": SWAPPED}, "the subgroups must be arc_challenge, arc_easy"),
        ({"shards": 5}, "scored in 5 shards, expected were 4"),
        ({"shard": 4}, "there is no shard 4 of 4"),
        ({"shard": None}, "is merged already"),
        ({"shard": 2}, "belongs to shard 1, not 2"),
        ({"pool_size": 0}, "at least 1 candidate"),
        ({"pool_size": 2**53 - 1}, "of 2251799813685248 positions are missing, first 13"),
        ({"pool_size": 17}, "1 of 4 positions are missing, first 13"),
        ({"pool_size": 9}, "position 9 is outside the pool of 9"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(shards: Any, changes: Any, message: str) -> None:
    check_shard(shards[1])
    with pytest.raises(ArtefactError, match=message):
        check_shard(with_header(shards[1], **changes))


def test_a_shard_with_a_position_missing_is_refused(shards: Any) -> None:
    shards[2] = replace(shards[2], records=shards[2].records[:-1])
    with pytest.raises(ArtefactError, match="shard 2: 1 of 3 positions are missing, first 10"):
        merge_shards(shards)


def test_a_missing_repeated_or_foreign_shard_is_refused(shards: Any, make_shards: Callable[..., Any]) -> None:
    with pytest.raises(
        ArtefactError, match=r"shards 0 to 3 once; given were \[0, 1, 3\]; give the file of shard 2 too$"
    ):
        merge_shards([shards[0], shards[1], shards[3]])
    with pytest.raises(ArtefactError, match=r"given were \[0, 1, 2, 2, 3\]; leave the repeated file out$"):
        merge_shards([*shards, shards[2]])
    with pytest.raises(ArtefactError, match=r"^no shards to merge$"):
        merge_shards([])
    other = make_shards({"boolq": [f"c{i}" for i in range(9)], "piqa": POOLS["piqa"]})
    with pytest.raises(ArtefactError, match="shards 0 and 3 differ in pool_sha256"):
        merge_shards([*shards[:3], other[3]])


def test_candidates_that_change_places_break_the_pools_digest(shards: Any) -> None:
    here, there = shards[0].records[0].record_id, shards[1].records[0].record_id
    shards[0] = with_record(shards[0], 0, record_id=there)
    shards[1] = with_record(shards[1], 0, record_id=here)
    check_shard(shards[0])
    check_shard(shards[1])
    for names, said in [((), "merged shards"), (("a", "b", "c", "d"), "a, b, c, d")]:
        with pytest.raises(
            ArtefactError, match=f"^{said}: the candidates aren't those of the pool that pool_sha256 binds"
        ):
            merge_shards(shards, names=names)


def test_scores_for_another_pool_are_refused(shards: Any) -> None:
    merged = merge_shards(shards)
    check_pool(merged, proxy_pool(POOLS))
    fewer = proxy_pool(POOLS | {"piqa": POOLS["piqa"][:-1]})
    for scores in (merged, shards[0]):
        with pytest.raises(ArtefactError, match=r"another pool \(13 candidates, .*\) than this one \(12 candidates"):
            check_pool(scores, fewer)
    renamed = proxy_pool(POOLS | {"piqa": ["p0", "p1", "p2", "p4"]})
    with pytest.raises(ArtefactError, match=r"another pool \(13 candidates, .* \(13 candidates"):
        check_pool(merged, renamed)


def test_a_single_shard_is_held_to_its_pool_by_position(shards: Any) -> None:
    check_pool(shards[1], proxy_pool(POOLS))
    with pytest.raises(ArtefactError, match="position 9 scores 'p3' of piqa, but the pool has 'p0' of piqa there"):
        check_pool(with_record(shards[1], 2, record_id="p3"), proxy_pool(POOLS))
    for position in (-1, 13):
        with pytest.raises(ArtefactError, match=f"^proxy scores: position {position} is outside the pool of 13"):
            check_pool(with_record(shards[1], 2, position=position), proxy_pool(POOLS))


def test_a_merged_set_is_held_to_all_of_it(shards: Any) -> None:
    merged = merge_shards(shards)
    for scores, said in [
        (replace(merged, records=(merged.records[1], merged.records[0], *merged.records[2:])), ".* descending score"),
        (replace(merged, records=merged.records[1:]), "1 of 13 positions are missing"),
        (replace(merged, records=(merged.records[0], *merged.records)), ".* is given twice"),
        (with_header(merged, pool_sha256="0" * 64), ".* pool_sha256 binds"),
        (with_header(merged, shards=5), "scored in 5 shards"),
        (shards[1], "is shard 1 of 4"),
    ]:
        with pytest.raises(ArtefactError, match=f"^merged: {said}"):
            check_merged(scores)
        with pytest.raises(ArtefactError, match=f"^m.jsonl: {said}"):
            check_merged(scores, name="m.jsonl")


def test_a_pool_may_be_one_shard_and_scores_may_be_integers(make_shards: Callable[..., Any]) -> None:
    contract = ProxyContract(subgroups=("a", "b"), shards=1)
    merged = merge_shards(make_shards(POOLS, contract=contract, means=lambda at, of: at - of), contract=contract)
    check_merged(merged, contract=contract)
    assert [record.score for record in merged.records] == list(range(12, -1, -1))

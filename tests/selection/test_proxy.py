"""Positions, order and the stable top-B of proxy scores (paper, appendix "Proxy-Score and Shard Validation")."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from calibudget.errors import InputError
from calibudget.selection.proxy import (
    PAPER_CONTRACT,
    ProxyContract,
    ProxyRecord,
    proxy_pool,
    ranked,
    top,
)
from calibudget.selection.proxy_checks import merge_shards
from calibudget.store.canonical import canonical_json

POOLS = {"piqa": ["p2", "p1"], "boolq": ["b3", "b1", "b2"]}


def record(score: float, record_id: str, source: str = "boolq", position: int = 0) -> ProxyRecord:
    return ProxyRecord(
        position=position, source=source, record_id=record_id, subgroups=("a",), subgroup_means=(score,), score=score
    )


def test_the_papers_contract_is_the_default() -> None:
    assert PAPER_CONTRACT.shards == 4
    assert PAPER_CONTRACT.subgroups == (
        "arc_challenge", "arc_easy", "boolq", "hellaswag", "openbookqa", "piqa", "social_i_qa", "winogrande",
    )  # fmt: skip


def test_positions_run_through_sources_and_ids_in_code_point_order() -> None:
    pool = proxy_pool(POOLS)
    assert list(pool.entries()) == [("boolq", "b1"), ("boolq", "b2"), ("boolq", "b3"), ("piqa", "p1"), ("piqa", "p2")]
    assert pool.size == 5


def test_the_pool_digest_is_that_of_the_canonical_array_of_its_entries() -> None:
    pool = proxy_pool({"a\u20ac": ['"x"\n', "y\u007f"], "b": ["y\u007f"]})
    entries = [list(entry) for entry in pool.entries()]
    assert pool.sha256 == hashlib.sha256(canonical_json(entries)).hexdigest()
    assert proxy_pool({}).sha256 == hashlib.sha256(b"[]").hexdigest()


def test_the_pool_digest_depends_on_the_candidates_and_not_on_their_order() -> None:
    shuffled = {"boolq": ["b2", "b3", "b1"], "piqa": ["p1", "p2"]}
    assert proxy_pool(shuffled) == proxy_pool(POOLS)
    assert proxy_pool(shuffled | {"piqa": ["p1", "p3"]}).sha256 != proxy_pool(POOLS).sha256
    assert proxy_pool({"boolq": ["b1"], "piqa": []}).sha256 == proxy_pool({"boolq": ["b1"]}).sha256


def test_a_candidate_twice_in_a_source_is_refused_but_may_be_in_two_sources() -> None:
    with pytest.raises(InputError, match="'b1' is in the pool twice"):
        proxy_pool({"boolq": ["b1", "b2", "b1"]})
    assert proxy_pool({"boolq": ["x"], "piqa": ["x"]}).size == 2


def test_order_is_by_descending_score_then_id_then_source() -> None:
    records = [record(0.5, "b"), record(0.9, "c"), record(0.5, "a", "piqa"), record(0.5, "a"), record(-1.0, "A")]
    order = [(one.score, one.record_id, one.source) for one in ranked(records)]
    assert order == [
        (0.9, "c", "boolq"), (0.5, "a", "boolq"), (0.5, "a", "piqa"), (0.5, "b", "boolq"), (-1.0, "A", "boolq"),
    ]  # fmt: skip
    assert ranked(reversed(records)) == ranked(records)


def test_the_top_is_stable_under_the_order_of_shards_and_nested(make_shards: Callable[..., Any]) -> None:
    pools = {"boolq": [f"b{i:02}" for i in range(30)], "piqa": [f"p{i:02}" for i in range(13)]}
    shards = make_shards(pools, means=lambda position, subgroup: float((position + subgroup) % 3))
    merged, other = merge_shards(shards), merge_shards(shards[::-1])
    assert [one.record_id for one in top(merged, 5)] == ["b00", "b01", "b02", "b03", "b04"]  # every score ties
    assert top(merged, 17) == top(other, 17)
    assert top(merged, 17)[:9] == top(merged, 9)
    assert top(merged, 0) == ()


def test_what_is_no_contract_or_top_is_refused_by_name(make_shards: Callable[..., Any]) -> None:
    merged = merge_shards(make_shards(POOLS))
    assert len(top(merged, 5)) == 5
    for count in (6, -1):
        with pytest.raises(InputError, match=f"the top {count} of 5 scored candidates can't be taken"):
            top(merged, count)
    for names in [(), ("a", "a"), ("a", "")]:
        with pytest.raises(InputError, match="nonempty and unique"):
            ProxyContract(subgroups=names)
    with pytest.raises(InputError, match="at least 1 shard, not 0"):
        ProxyContract(shards=0)

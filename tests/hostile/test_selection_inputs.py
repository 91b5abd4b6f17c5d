"""Whatever stands in for ids, scores, vectors, bytes or paths: an answer, or an error of ours that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.errors import CalibudgetError
from calibudget.selection.draw import canonical_selected_indices_sha256, draw
from calibudget.selection.proxy import (
    ProxyContract,
    ProxyHeader,
    ProxyRecord,
    ProxyScores,
    parse_proxy_lines,
    proxy_pool,
    ranked,
    top,
)
from calibudget.selection.proxy_checks import check_merged, check_pool, check_shard, merge_shards
from calibudget.selection.sketch import CountSketch
from calibudget.store.artefacts import ids_sha256
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.sums import file_digest

ODD: list[Any] = [
    None, True, False, 0, -1, 3, 1.0, -0.0, 0.5, math.nan, math.inf, 1e308, 10**30, 10**400, 10**5000, 2**53,
    np.int64(3), np.float64("nan"), np.bool_(True), np.array(3), np.array([[1, 2]]), np.array(["x"]), np.array([1j]),
    "", "x", "abc", "\ud800", "a\0b", b"", b"ab", bytearray(b"ab"), memoryview(b"ab"), 1j, [], [1], ["a", 1], (), {},
    {"a": 1}, {1: 2}, {"a": None}, {"a": "abc"}, {"a": 5}, {"a": [None]}, {"a": [[]]}, set(), {"b", "a"}, object(),
    len, int,
]  # fmt: skip

POOLS = {"a": ["a0", "a1", "a2"], "b": ["b0"]}
CONTRACT = ProxyContract(subgroups=("g", "h"), shards=1)
POOL = proxy_pool(POOLS)
HEADER = ProxyHeader(pool_size=4, pool_sha256=POOL.sha256, subgroups=("g", "h"), shards=1, shard=0)
RECORDS = tuple(
    ProxyRecord(
        position=position,
        source=source,
        record_id=record_id,
        subgroups=("g", "h"),
        subgroup_means=(0.25, position / 8),
        score=max(0.25, position / 8),
    )
    for position, (source, record_id) in enumerate(POOL.entries())
)
SHARD = ProxyScores(header=HEADER, records=RECORDS)
MERGED = merge_shards([SHARD], contract=CONTRACT)


def changed(scores: ProxyScores) -> Iterator[Any]:
    """Odd values, and scores with an odd value in each place."""
    yield from ODD
    for odd in ODD:
        yield ProxyScores(header=odd, records=scores.records)
        yield ProxyScores(header=scores.header, records=odd)
        yield replace(scores, records=(odd, *scores.records[1:]))
        for field in fields(ProxyHeader):
            yield replace(scores, header=replace(scores.header, **{field.name: odd}))
        for field in fields(ProxyRecord):
            yield replace(scores, records=(replace(scores.records[0], **{field.name: odd}), *scores.records[1:]))


CALLS: dict[str, tuple[Callable[..., object], list[Any]]] = {
    "canonical_selected_indices_sha256": (canonical_selected_indices_sha256, [*ODD, *([one] for one in ODD)]),
    "ids_sha256": (ids_sha256, [*ODD, *([one] for one in ODD)]),
    "proxy_pool": (proxy_pool, [*ODD, *({"a": one} for one in ODD), *({"a": [one, "x"]} for one in ODD)]),
    "CountSketch dimension": (lambda one: CountSketch(dimension=one, seed=1)([1.0, 2.0]), ODD),
    "CountSketch seed": (lambda one: CountSketch(dimension=4, seed=one)([1.0, 2.0]), ODD),
    "CountSketch block": (lambda one: CountSketch(dimension=4, seed=1, block_size=one)([1.0, 2.0]), ODD),
    "CountSketch call": (CountSketch(dimension=4, seed=1), [*ODD, *([one, 1.0] for one in ODD)]),
    "CountSketch bins from": (lambda one: CountSketch(dimension=4, seed=1).bins(one, 5), ODD),
    "CountSketch bins to": (lambda one: CountSketch(dimension=4, seed=1).bins(0, one), [
        one for one in ODD if not (isinstance(one, int) and one > 2**20)
    ]),
    "top": (lambda one: top(one, 1), list(changed(MERGED))),
    "top count": (lambda one: top(MERGED, one), ODD),
    "ranked": (ranked, [*ODD, *([one] for one in ODD)]),
    "ProxyContract subgroups": (lambda one: ProxyContract(subgroups=one), [*ODD, *((one, "x") for one in ODD)]),
    "ProxyContract shards": (lambda one: ProxyContract(shards=one), ODD),
    "check_shard": (lambda one: check_shard(one, contract=CONTRACT), list(changed(SHARD))),
    "check_merged": (lambda one: check_merged(one, contract=CONTRACT), list(changed(MERGED))),
    "check_pool": (lambda one: check_pool(one, POOL), list(changed(MERGED))),
    "check_pool pool": (lambda one: check_pool(MERGED, one), ODD),
    "merge_shards": (lambda one: merge_shards(one, contract=CONTRACT), [*ODD, *([one] for one in changed(SHARD))]),
    "parse_proxy_lines": (lambda one: parse_proxy_lines(one, "file"), [*ODD, *([one] for one in ODD)]),
    "loads_object": (lambda one: loads_object(one, "file"), ODD),
    "canonical_json": (canonical_json, [*ODD, *([one] for one in ODD)]),
    "file_digest": (file_digest, [*ODD, Path("a\0b"), Path("\ud800")]),
    "draw pools": (lambda one: draw(one, {"a": 1}, selection_seed=1), [*ODD, *({"a": one} for one in ODD)]),
    "draw quotas": (lambda one: draw({"a": ["x"]}, one, selection_seed=1), [*ODD, *({"a": one} for one in ODD)]),
    "draw seed": (lambda one: draw({"a": ["x"]}, {"a": 1}, selection_seed=one), ODD),
}  # fmt: skip


def test_odd_values_are_answered_or_refused(subtests: pytest.Subtests) -> None:
    for name in CALLS:
        with subtests.test(name=name):
            function, odd = CALLS[name]
            for value in odd:
                try:
                    function(value)
                except CalibudgetError:
                    continue

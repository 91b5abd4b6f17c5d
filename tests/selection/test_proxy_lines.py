"""The lines of a proxy-score file: round trip, and every line that can't be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.selection.proxy import ProxyContract, ProxyScores, parse_proxy_lines, proxy_lines
from calibudget.selection.proxy_checks import merge_shards

POOLS = {"boolq": ["b1", "é\n"], "piqa": ["p1"]}
HEADER = {
    "schema": "calibudget.proxy/1", "pool_size": 3, "pool_sha256": "0" * 64, "subgroups": ["s", "t"],
    "shards": 1, "shard": 0, "provenance": {},
}  # fmt: skip
RECORD = {
    "position": 0, "source": "boolq", "record_id": "b1", "subgroups": ["s", "t"], "subgroup_means": [0.5, 1],
    "score": 1,
}  # fmt: skip


def lines_of(*objects: object) -> list[bytes]:
    return [json.dumps(value).encode() + b"\n" for value in objects]


def test_what_is_written_reads_back_equal_bit_for_bit(make_shards: Callable[..., Any]) -> None:
    values = [0.1, 1e-320, -1.7e308, 1e-7, 123456789.0, 5e-324, 1 / 3, -0.0]
    shards = make_shards(
        POOLS, means=lambda position, subgroup: values[(position + subgroup) % 8], provenance={"a": [1]}
    )
    for scores in (*shards, merge_shards(shards)):
        assert parse_proxy_lines(proxy_lines(scores), "x") == scores


def test_the_lines_are_canonical_and_documented(make_shards: Callable[..., Any]) -> None:
    contract = ProxyContract(subgroups=("t", "s"), shards=1)
    (shard,) = make_shards(POOLS, contract=contract, means=lambda position, subgroup: position + subgroup / 2)
    header, first, *_ = proxy_lines(shard)
    assert header == (
        b'{"pool_sha256":"%b","pool_size":3,"provenance":{},"schema":"calibudget.proxy/1","shard":0,"shards":1,'
        b'"subgroups":["t","s"]}\n' % shard.header.pool_sha256.encode()
    )
    assert first == (
        b'{"position":0,"record_id":"b1","score":0.5,"source":"boolq","subgroup_means":[0,0.5],"subgroups":["t","s"]}\n'
    )


def test_a_file_made_elsewhere_need_not_be_canonical() -> None:
    scores = parse_proxy_lines(lines_of(HEADER, RECORD), "x")
    assert isinstance(scores, ProxyScores)
    assert scores.records[0].subgroup_means == (0.5, 1.0)
    assert scores.records[0].subgroups is scores.header.subgroups
    turned = parse_proxy_lines(lines_of(HEADER, {**RECORD, "subgroups": ["t", "s"]}), "x")
    assert turned.records[0].subgroups == ("t", "s")  # for the checks to refuse


def test_a_line_that_is_not_as_documented_is_refused_by_line_and_field(subtests: pytest.Subtests) -> None:
    for lines, message in [
        ([], "x: empty"),
        (lines_of([1]), "x:1: the root must be an object, not list"),
        (lines_of(RECORD), "x:1: schema: is missing"),
        (lines_of({**HEADER, "pool_size": 3.5}), "x:1: pool_size: must be an integer"),
        (lines_of({**HEADER, "pool_sha256": "abc"}), "x:1: pool_sha256: must be of the form"),
        (lines_of({**HEADER, "seed": 1}), "x:1: seed: is not a field"),
        (lines_of(HEADER, HEADER), "x:2: (position: is missing|source: is missing|subgroups)"),
        (lines_of(HEADER, RECORD, "text"), "x:3: the root must be an object, not str"),
        ([*lines_of(HEADER, RECORD), b"\n", *lines_of(RECORD)], "x:3: not valid JSON"),
        ([*lines_of(HEADER), b'{"position":0,"position":1}'], "x:2: .*'position' is given twice"),
        (lines_of(HEADER, {**RECORD, "position": 0.0}), "x:2: position: must be an integer, not 0.0"),
        (lines_of(HEADER, {**RECORD, "source": ""}), "x:2: source: must not be empty"),
        (lines_of(HEADER, {**RECORD, "subgroup_means": [0.5]}), "x:2: subgroup_means: must be a list of length 2"),
        (lines_of(HEADER, {**RECORD, "subgroup_means": [0.5, None]}), r"means\[1\]: must be a number, not None"),
        (lines_of(HEADER, {**RECORD, "score": float("nan")}), "x:2: not valid JSON: NaN is not a JSON number"),
        (lines_of(HEADER, {k: v for k, v in RECORD.items() if k != "score"}), "x:2: score: is missing"),
    ]:
        with subtests.test(lines=lines, message=message):
            parse_proxy_lines(lines_of(HEADER, RECORD), "x")
            with pytest.raises(ArtefactError, match=message):
                parse_proxy_lines(lines, "x")


def test_a_mean_that_is_not_finite_can_not_be_written(make_shards: Callable[..., Any]) -> None:
    (shard,) = make_shards(POOLS, contract=ProxyContract(subgroups=("s",), shards=1), means=lambda *_: float("nan"))
    with pytest.raises(InputError):
        list(proxy_lines(shard))

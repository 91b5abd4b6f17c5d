from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from calibudget.selection.proxy import PAPER_CONTRACT, ProxyContract, ProxyHeader, ProxyRecord, ProxyScores, proxy_pool

Means = Callable[[int, int], float]


@pytest.fixture
def make_shards() -> Callable[..., list[ProxyScores]]:
    """A valid, complete set of shards; means by position and subgroup number."""
    return _make_shards


def _make_shards(
    pools: Mapping[str, list[str]],
    *,
    contract: ProxyContract = PAPER_CONTRACT,
    means: Means = lambda position, subgroup: ((position * 7 + subgroup * 3) % 11) / 11,
    provenance: Mapping[str, object] | None = None,
) -> list[ProxyScores]:
    pool = proxy_pool(pools)
    header = ProxyHeader(
        pool_size=pool.size,
        pool_sha256=pool.sha256,
        subgroups=contract.subgroups,
        shards=contract.shards,
        shard=0,
        provenance=provenance or {},
    )
    records: list[list[ProxyRecord]] = [[] for _ in range(contract.shards)]
    for position, (source, record_id) in enumerate(pool.entries()):
        values = tuple(means(position, number) for number in range(len(contract.subgroups)))
        record = ProxyRecord(
            position=position,
            source=source,
            record_id=record_id,
            subgroups=contract.subgroups,
            subgroup_means=values,
            score=max(values),
        )
        records[position % contract.shards].append(record)
    return [_shard(header, number, part) for number, part in enumerate(records)]


def _shard(header: ProxyHeader, number: int, records: list[ProxyRecord]) -> ProxyScores:
    from dataclasses import replace

    return ProxyScores(header=replace(header, shard=number), records=tuple(records))

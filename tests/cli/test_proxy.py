"""`calibudget proxy` on files: what it prints, what it refuses, and that nothing is half written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.proxy_files import read_proxy_file, write_proxy_file
from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyHeader, ProxyRecord, ProxyScores, proxy_pool
from calibudget.store.checksums import file_digest
from calibudget.store.splits import write_splits
from tests.conftest import record_of, split_of

POOLS = {"boolq": ["b0", "b1", "b2", "b3"], "piqa": ["p0", "p1"]}


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """The four shards of a pool of six, as files."""
    pool, paths = proxy_pool(POOLS), []
    for shard in range(4):
        records = [
            _record(position, source, record_id)
            for position, (source, record_id) in enumerate(pool.entries())
            if position % 4 == shard
        ]
        header = ProxyHeader(
            pool_size=pool.size, pool_sha256=pool.sha256, subgroups=PAPER_SUBGROUPS, shards=4, shard=shard
        )
        paths.append(tmp_path / f"proxy-{shard}.jsonl")
        write_proxy_file(paths[-1], ProxyScores(header=header, records=tuple(records)))
    return paths


def _record(position: int, source: str, record_id: str) -> ProxyRecord:
    means = tuple((position * 5 % 6 + number) / 8 for number in range(8))
    return ProxyRecord(
        position=position,
        source=source,
        record_id=record_id,
        subgroups=PAPER_SUBGROUPS,
        subgroup_means=means,
        score=max(means),
    )


def test_merge_writes_the_best_candidate_first(calibudget: Any, shards: Any, tmp_path: Path) -> None:
    merged = tmp_path / "merged.jsonl"
    output = calibudget("proxy", "merge", *shards[::-1], "--output", merged).out
    assert "6 records, all 6 candidates, 8 subgroups" in output
    scores = read_proxy_file(merged)
    assert [(record.score, record.record_id) for record in scores.records] == [
        (1.5, "b1"), (1.375, "b2"), (1.25, "b3"), (1.125, "p0"), (1.0, "p1"), (0.875, "b0"),
    ]  # fmt: skip
    again = tmp_path / "again.jsonl"
    calibudget("proxy", "merge", *shards, "--output", again)
    assert again.read_bytes() == merged.read_bytes()
    assert "all 6 candidates" in calibudget("proxy", "validate", merged).out


def test_json_output_binds_every_file(calibudget: Any, shards: Any, tmp_path: Path) -> None:
    merged = tmp_path / "merged.jsonl"
    report = json.loads(calibudget("proxy", "merge", *shards, "--output", merged, "--json").out)
    assert report["schema"] == "calibudget.proxy-report/1"
    assert report["records"] == report["pool_size"] == 6
    assert report["pool_sha256"] == proxy_pool(POOLS).sha256
    assert report["pool_checked"] is False
    assert report["shard"] is None
    assert list(report["subgroups"]) == list(PAPER_SUBGROUPS)
    assert {name: entry["sha256"] for name, entry in report["files"].items()} == {
        str(path): file_digest(path).sha256 for path in shards
    }
    assert report["output"]["sha256"] == file_digest(merged).sha256


def test_the_output_must_not_be_one_of_the_shards(calibudget: Any, shards: Any) -> None:
    before = shards[3].read_bytes()
    refused = calibudget("proxy", "merge", *shards, "--output", shards[3])
    assert (refused.code, refused.out) == (2, "")
    assert "is one of the shards" in refused.err
    assert shards[3].read_bytes() == before


def test_the_pool_of_a_run_holds_or_refuses_the_scores(calibudget: Any, shards: Any, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for directory, pools in ((run, POOLS), (other, POOLS | {"piqa": ["p0", "p2"]})):
        directory.mkdir()
        _write_splits(directory / "splits.parquet", pools)
    assert "the pool of the run" in calibudget("proxy", "validate", *shards, "--pool", run).out
    assert "the pool of the run" in calibudget("proxy", "validate", shards[0], "--pool", run / "splits.parquet").out
    merged = tmp_path / "merged.jsonl"
    refused = calibudget("proxy", "merge", *shards, "--pool", other, "--output", merged)
    assert (refused.code, refused.out) == (2, "")
    assert re.search(r"another pool \(6 candidates, .*score this pool again", refused.err)
    assert not merged.exists()


def _write_splits(path: Path, pools: dict[str, list[str]]) -> None:
    splits = [split_of([record_of(source, record_id=one) for one in ids]) for source, ids in pools.items()]
    write_splits(path, splits, split_seed=42, selection_seed=42)

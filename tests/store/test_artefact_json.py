"""statistics.json, allocation.json and selection.json: exact round trips, and every fault named by file and field."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.records import TokenUse
from calibudget.store.artefacts import (
    ALLOCATION,
    SELECTION,
    STATISTICS,
    digest_selection,
    ids_sha256,
    stated_quotas_sha256,
    statistics_sha256,
)
from calibudget.store.canonical import canonical_json, sha256_hex


def changed(value: Any, path: str, item: Any) -> Any:
    """A deep copy with one field set, or removed where the item is `...`."""
    copy = json.loads(json.dumps(value))
    *parents, last = path.split(".")
    inner = copy
    for name in parents:
        inner = inner[name]
    if item is ...:
        del inner[last]
    else:
        inner[last] = item
    return copy


def test_statistics_round_trip_bit_for_bit(tmp_path: Path, statistics: Any) -> None:
    path = tmp_path / "statistics.json"
    STATISTICS.write(path, statistics)
    again = STATISTICS.read(path)
    assert again == statistics
    assert isinstance(again.sources["piqa"].mean_nll, float)
    assert isinstance(again.sources["boolq"].bootstrap_means[0], float)  # type: ignore[index]
    assert path.read_bytes() == canonical_json(STATISTICS.to_json(statistics))
    assert statistics_sha256(statistics) == sha256_hex(path.read_bytes())


def test_a_hand_written_statistics_file_may_leave_out_what_is_null(statistics: Any) -> None:
    value = changed(STATISTICS.to_json(statistics), "sources.boolq.slope", ...)
    value = changed(value, "sources.piqa.bootstrap_means", ...)
    assert STATISTICS.parse(value, "x") == statistics


def test_statistics_that_arent_finite_are_not_written(tmp_path: Path, statistics: Any) -> None:
    broken = replace(statistics, sources={"a": replace(statistics.sources["boolq"], mean_nll=float("nan"))})
    with pytest.raises(InputError):
        STATISTICS.write(tmp_path / "statistics.json", broken)
    assert list(tmp_path.iterdir()) == []


def test_faults_of_statistics_are_named(statistics: Any, subtests: pytest.Subtests) -> None:
    for path, item, said in [
        ("schema", "calibudget.statistics/2", "schema: must be 'calibudget.statistics/1'"),
        ("model", "SmolLM2", "model: must be an object"),
        ("error", "z", "error: must be 'nll+wrong', 'nll' or 'nll_per_answer'"),
        ("bootstrap.extra", 4, "bootstrap.extra: is not a field"),
        ("sources", {}, "sources: holds 0 and needs 1 or more"),
        ("sources.boolq", 3, "sources.boolq: must be an object"),
        ("sources.BOOLQ", {}, "differ only by case"),
        ("sources.boolq.pool_size", -1, "sources.boolq.pool_size: must be at least 0"),
        ("sources.boolq.pool_size", 10.0, "sources.boolq.pool_size: must be an integer"),
        ("sources.boolq.mean_nll", -0.1, "sources.boolq.mean_nll: must be at least -1e-06"),
        ("sources.boolq.mean_nll", ..., "sources.boolq.mean_nll: is missing"),
        ("sources.boolq.error_rate", None, "since the error rule is nll+wrong"),
        ("sources.boolq.bootstrap_means", [1.0, 2.0], "bootstrap_means: must be a list of length 3"),
        ("sources.boolq.bootstrap_means", [1.0, 2.0, None], "bootstrap_means[2]: must be a number"),
        ("sources.boolq.slop", 0.1, "sources.boolq.slop: is not a field"),
        ("sources.boolq.slope", 0.1, "sources.boolq.slope: must be null, since the policies that read learning curves"),
    ]:
        with subtests.test(path=path):
            with pytest.raises(ArtefactError, match=r"^statistics\.json: ") as caught:
                STATISTICS.parse(changed(STATISTICS.to_json(statistics), path, item), "statistics.json")
            assert said in str(caught.value)


def test_allocation_round_trips_bit_for_bit(tmp_path: Path, plan: Any) -> None:
    ALLOCATION.write(tmp_path / "allocation.json", plan)
    assert ALLOCATION.read(tmp_path / "allocation.json") == plan
    assert (tmp_path / "allocation.json").read_bytes() == canonical_json(ALLOCATION.to_json(plan))


def test_quotas_have_a_digest_of_their_own(tmp_path: Path, plan: Any) -> None:
    path = tmp_path / "allocation.json"
    ALLOCATION.write(path, plan)
    assert stated_quotas_sha256(path) == hashlib.sha256(b'{"boolq":5,"piqa":7}').hexdigest()
    path.write_bytes(canonical_json(changed(ALLOCATION.to_json(plan), "quotas_sha256", ...)))
    assert stated_quotas_sha256(path) is None
    assert ALLOCATION.read(path) == plan


def test_faults_of_an_allocation_are_named(plan: Any, subtests: pytest.Subtests) -> None:
    for path, item, said in [
        ("unit", "rows", "unit: must be 'examples' or 'tokens'"),
        ("budget", 12.0, "budget: must be an integer"),
        ("statistics_sha256", "AB" * 32, "statistics_sha256: must be of the form ^[0-9a-f]{64}$"),
        ("sources.boolq.quota", -5, "sources.boolq.quota: must be at least 0"),
        ("sources.boolq.interval", [6, 4], "sources.boolq.interval: must be [lowest, highest]"),
        ("sources.boolq.interval", [4], "sources.boolq.interval[1]: is missing"),
    ]:
        with subtests.test(path=path):
            with pytest.raises(ArtefactError, match=r"^allocation\.json: ") as caught:
                ALLOCATION.parse(changed(ALLOCATION.to_json(plan), path, item), "allocation.json")
            assert said in str(caught.value)


def test_selection_is_kept_by_digest(tmp_path: Path, selection: Any) -> None:
    SELECTION.write(tmp_path / "selection.json", digest_selection(selection))
    digest = SELECTION.read(tmp_path / "selection.json")
    assert digest == digest_selection(selection)
    assert digest.count == 12
    assert digest.companion_count == 2
    assert digest.sources["piqa"].quota == 7
    assert digest.sources["piqa"].record_ids_sha256 == ids_sha256(selection.picks["piqa"])
    assert digest.selected_sha256 == ids_sha256([*selection.picks["boolq"], *selection.picks["piqa"]])


def test_a_selection_by_tokens_tells_quota_count_and_tokens_of_each_source(selection: Any) -> None:
    use = {"boolq": TokenUse(quota=100, taken=97), "piqa": TokenUse(quota=50, taken=51)}
    details = {"name": "scores", "scores_sha256": "0" * 64}
    found = SELECTION.to_json(digest_selection(replace(selection, tokens=use, details=details)))
    assert (found["count"], found["tokens"], found["details"]) == (12, 148, details)
    digest = ids_sha256(selection.picks["piqa"])
    assert found["sources"]["piqa"] == {"quota": 50, "record_ids_sha256": digest, "count": 7, "tokens": 51}
    assert found["sources"]["boolq"]["tokens"] == 97

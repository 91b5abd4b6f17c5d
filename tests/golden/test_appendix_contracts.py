"""The contracts of the paper's appendix in one place: its seven synthetic tests by our names, and what stands beside
them in its text. The tests that mirror each module go further; this file shows that nothing on the list is missing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget import allocate, canonical_selected_indices_sha256
from calibudget.errors import CalibudgetError
from calibudget.lm.encoding import Encoder
from calibudget.records import Record
from calibudget.selection.count_sketch import CountSketch
from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyHeader, ProxyRecord, ProxyScores, proxy_pool, top
from calibudget.selection.proxy_checks import check_shard, merge_shards
from calibudget.sources.identity import normalise_record
from calibudget.sources.split import check_roles
from calibudget.store.canonical import loads_object
from calibudget.store.checksums import check_sums, file_digest, write_sums
from tests.conftest import record_of

CAPACITIES = {"a": 3, "b": 10, "c": 10}


# (i) "exact budget and capacity safety of floor-residual allocation"


def test_the_budget_is_spent_exactly_between_floor_and_capacity() -> None:
    """Appendix, "Stable Tie Breaking and Selection Identity": capacities (3,10,10), utilities (1,2,3), B=12, f=2."""
    assert list(allocate(CAPACITIES, {"a": 1, "b": 2, "c": 3}, 12, 2).quotas.values()) == [3, 4, 5]
    for budget in range(6, 24):
        quotas = allocate(CAPACITIES, {"a": 5, "b": 0, "c": 0.1}, budget, 2).quotas
        assert sum(quotas.values()) == budget
        assert all(2 <= quotas[label] <= CAPACITIES[label] for label in CAPACITIES)


@pytest.mark.parametrize(
    ("pools", "utilities", "budget", "floor"),
    [
        (CAPACITIES, {"a": 1, "b": 2, "c": 3}, -1, 0),
        ({**CAPACITIES, "a": -3}, {"a": 1, "b": 2, "c": 3}, 5, 0),
        (CAPACITIES, {"a": 1, "b": 2}, 5, 0),
        (CAPACITIES, {"a": 1, "b": 2, "c": 3}, 5, 2),
        (CAPACITIES, {"a": 1, "b": 2, "c": 3}, 24, 0),
        (CAPACITIES, {"a": -1, "b": 2, "c": 3}, 5, 0),
    ],
    ids=[
        "negative budget",
        "negative capacity",
        "keys differ",
        "infeasible floor",
        "above capacity",
        "negative utility",
    ],
)
def test_what_no_allocation_satisfies_is_refused(pools: Any, utilities: Any, budget: int, floor: int) -> None:
    """Appendix, "Floor-Residual Decomposition": the list of rejections."""
    with pytest.raises(CalibudgetError):
        allocate(pools, utilities, budget, floor)


# (ii) "order-sensitive selected-index hashes"


def test_selected_indices_have_a_digest_that_depends_on_their_order() -> None:
    """Appendix, "Stable Tie Breaking and Selection Identity"."""
    assert canonical_selected_indices_sha256([3, 1, 2]) == hashlib.sha256(b"[3,1,2]").hexdigest()
    assert canonical_selected_indices_sha256([3, 1, 2]) != canonical_selected_indices_sha256([1, 2, 3])
    with pytest.raises(CalibudgetError, match="twice"):
        canonical_selected_indices_sha256([3, 1, 3])


# (iii) "canonical four-shard membership and stable top-B selection"


def four_shards() -> list[ProxyScores]:
    """Ten candidates, position i in shard i mod 4, the score of position i being (i mod 3) / 2."""
    pool = proxy_pool({"piqa": [f"r{i}" for i in range(10)]})
    header = ProxyHeader(pool_size=10, pool_sha256=pool.sha256, subgroups=PAPER_SUBGROUPS, shards=4, shard=0)
    records = [
        ProxyRecord(
            position=position,
            source=source,
            record_id=record_id,
            subgroups=PAPER_SUBGROUPS,
            subgroup_means=(-1.0,) * 7 + (position % 3 / 2,),
            score=position % 3 / 2,
        )
        for position, (source, record_id) in enumerate(pool.entries())
    ]
    return [ProxyScores(header=replace(header, shard=k), records=tuple(records[k::4])) for k in range(4)]


def test_four_shards_merge_into_a_stable_order_by_score_then_id() -> None:
    """Appendix, "Proxy-Score and Shard Validation"."""
    shards = four_shards()
    for turned in (shards, shards[::-1], [shards[2], shards[0], shards[3], shards[1]]):
        merged = merge_shards(turned)
        assert [record.record_id for record in top(merged, 6)] == ["r2", "r5", "r8", "r1", "r4", "r7"]


def test_an_incomplete_union_or_a_malformed_record_is_refused(subtests: pytest.Subtests) -> None:
    """Appendix, "Proxy-Score and Shard Validation": missing, duplicated, out-of-range or cross-shard positions."""
    for fault in ["missing", "duplicated", "out of range", "cross-shard", "three shards", "not the max"]:
        with subtests.test(fault=fault):
            shards = four_shards()
            merge_shards(shards)
            first, second = shards[0].records, shards[1].records
            changed = {
                "missing": first[:-1],
                "duplicated": (*first, first[0]),
                "out of range": (*first[:-1], replace(first[-1], position=12)),
                "cross-shard": (*first[:-1], second[-1]),
                "three shards": (),
                "not the max": (replace(first[0], score=0.25), *first[1:]),
            }[fault]
            shards[0] = replace(shards[0], records=changed)
            with pytest.raises(CalibudgetError):
                merge_shards(shards[1:] if fault == "three shards" else shards)


# (iv) "rejection of subgroup-order drift"


def test_the_subgroup_order_is_frozen() -> None:
    """Appendix, "Proxy-Score and Shard Validation": ARC-Challenge, ARC-Easy, BoolQ, HellaSwag, ..., WinoGrande."""
    names = "arc_challenge arc_easy boolq hellaswag openbookqa piqa social_i_qa winogrande"
    assert " ".join(PAPER_SUBGROUPS) == names
    shard = four_shards()[0]
    check_shard(shard)
    swapped = (*PAPER_SUBGROUPS[1::-1], *PAPER_SUBGROUPS[2:])
    drifted = replace(shard.records[0], subgroups=swapped)
    for faulty in (
        replace(shard, header=replace(shard.header, subgroups=swapped)),
        replace(shard, records=(drifted, *shard.records[1:])),
    ):
        with pytest.raises(CalibudgetError, match="in this order"):
            check_shard(faulty)


# (v) "record normalization and role disjointness"


@pytest.mark.parametrize("prompt", ["instruction", "prompt", "question"])
@pytest.mark.parametrize("response", ["response", "output", "answer"])
def test_records_normalise_under_common_names_to_one_id(prompt: str, response: str) -> None:
    """Appendix, "Record and Role Integrity"."""
    record = normalise_record({prompt: "  Is \n it\tso? ", response: " Yes, it is. \n"})
    assert (record.instruction, record.response) == ("Is it so?", "Yes, it is.")
    assert record.record_id == hashlib.sha256(b'["Is it so?","Yes, it is."]').hexdigest()
    assert record.prompt_hash == normalise_record({prompt: "IS IT SO?", response: "No"}).prompt_hash
    for missing in ({prompt: "Is it so?"}, {response: "Yes"}, {prompt: " ", response: "Yes"}, {}):
        with pytest.raises(CalibudgetError):
            normalise_record(missing)


@pytest.mark.parametrize(
    "roles",
    [
        {"calibration": []},
        {"calibration": [1, 1]},
        {"calibration": [1], "candidate": [2, 1]},
        {"Calibration": [1]},
        {"held out": [1]},
    ],
    ids=["empty", "repeated", "shared", "upper case", "no identifier"],
)
def test_roles_are_nonempty_unique_disjoint_and_lower_case(roles: Any) -> None:
    """Appendix, "Record and Role Integrity"."""
    check_roles({"calibration": [1, 2], "candidate": [3], "validation": {4}})
    with pytest.raises(CalibudgetError):
        check_roles(roles)


# (vi) "deterministic sketching and rejection of nonfinite vectors"


def test_a_sketch_is_a_function_of_seed_and_position() -> None:
    """Appendix, "Tokenization, Sketching, and File Binding"; the vector of docs/decisions/0010-countsketch.md."""
    vector = np.arange(40.0)
    expected = [49, 16, -80, 39, 38, 23, 3, 18]
    for block_size in (None, 1, 7, 40):
        assert CountSketch(dimension=8, seed=42, block_size=block_size)(vector).tolist() == expected
    assert CountSketch(dimension=8, seed=43)(vector).tolist() != expected
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(CalibudgetError):
            CountSketch(dimension=8, seed=42)(np.append(vector, bad))


# (vii) "JSON/file-binding integrity"


def test_json_roots_are_objects_and_files_are_bound(tmp_path: Path) -> None:
    """Appendix, "Tokenization, Sketching, and File Binding", and the archive's own SHA256SUMS.tsv."""
    assert loads_object(b'{"a":[1]}', "x") == {"a": [1]}
    for data in (b"[1]", b'"a"', b"null", b"1", b"{", b'{"a":NaN}', b'{"a":1,"a":2}'):
        with pytest.raises(CalibudgetError):
            loads_object(data, "x")
    (tmp_path / "a.json").write_bytes(b'{"a":1}')
    (tmp_path / "b.json").write_bytes(b"{}")
    digest = file_digest(tmp_path / "a.json")
    assert (digest.bytes, digest.sha256) == (7, hashlib.sha256(b'{"a":1}').hexdigest())
    write_sums(tmp_path, ["a.json", "b.json"])
    assert check_sums(tmp_path) == []
    (tmp_path / "a.json").write_bytes(b'{"a":2}')
    (tmp_path / "b.json").unlink()
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    assert [difference.file for difference in check_sums(tmp_path)] == ["a.json", "b.json"]
    with pytest.raises(CalibudgetError, match="symbolic link"):
        file_digest(tmp_path / "b.json")


# The response-only encoding, which the appendix names and its seven tests leave out


class Words:
    """A tokenizer of the caller's: a token for each byte, 256 ends a text."""

    bos_token_id = None
    eos_token_id = 256

    def __call__(self, texts: list[str], **options: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(text.encode()) for text in texts]}


def record(prompt: str, completion: str) -> Record:
    return record_of(prompt=prompt, completion=completion)  # type: ignore[no-any-return]


def test_only_the_response_is_taught_and_truncation_leaves_at_least_one_token_of_it() -> None:
    """Appendix, "Tokenization, Sketching, and File Binding": total length and surviving response tokens."""
    prompt_length = len(Encoder("alpaca", Words()).encode(record("Say hi.", "hi")).prompt_ids)
    whole = Encoder("alpaca", Words()).encode(record("Say hi.", "hi"))
    assert bytes(whole.prompt_ids).decode().endswith("### Instruction:\nSay hi.\n\n### Response:\n")
    assert (whole.response_ids, whole.total_length) == ((*b"hi", 256), prompt_length + 3)
    cut = Encoder("alpaca", Words(), prompt_length + 1).encode(record("Say hi.", "hi"))
    assert (cut.response_ids, cut.total_length) == ((ord("h"),), prompt_length + 1)
    with pytest.raises(CalibudgetError, match="no response token"):
        Encoder("alpaca", Words(), prompt_length).encode(record("Say hi.", "hi"))
    for length in (0, -5):
        with pytest.raises(CalibudgetError, match="positive"):
            Encoder("alpaca", Words(), length)


@pytest.mark.slow
def test_a_quota_and_a_selection_are_the_same_in_another_process(tmp_path: Path) -> None:
    """Appendix, "Stable Tie Breaking and Selection Identity": the same dictionary across Python processes."""
    import os
    import subprocess
    import sys

    code = (
        "import json; from calibudget import allocate;"
        "print(json.dumps(allocate({'b': 9, 'a': 9, 'c': 9}, {'c': 1, 'b': 1, 'a': 1}, 11, 1).quotas))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "7")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == {"a": 4, "b": 4, "c": 3}

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DataError
from calibudget.store.canonical import sha256_hex
from testbed.candidates import CANDIDATES
from testbed.data import data_sha256, generate, parted, read_half
from testbed.families import (
    CALIBRATION_SIZE,
    COMPANION,
    FIRST_HALVES,
    HALVES,
    TEST_SIZE,
    families_of,
    first_seed,
)
from testbed.family import Family
from testbed.protocol import read_protocol

pytestmark = pytest.mark.slow


def test_disjoint_groups_of_eight_families_with_unequal_pools() -> None:
    names = [[family.name for family in half] for half in HALVES.values()]
    assert {len(set(half)) for half in names} == {8}
    assert not {family.game for family in HALVES["answers-1"]} & {family.game for family in HALVES["answers-2"]}
    assert len({name for half in names for name in half} | {COMPANION.name}) == 65
    for half in (HALVES["choose"], HALVES["confirm"], HALVES["confirm-2"]):
        sizes = [family.pool for family in half]
        assert min(sizes) == 900
        assert max(sizes) == 6000
    every = [*HALVES["choose"], *HALVES["confirm"], COMPANION, *HALVES["confirm-2"], *CANDIDATES]
    assert [first_seed(family) // 1_000_000 for family in every] == list(range(1, 66))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_third_testbed_s_data_is_that_of_its_frozen_protocol(protocol_path: Path, tmp_path: Path) -> None:
    protocol = read_protocol(protocol_path.with_name("testbed-3.yaml"))
    assert generate(tmp_path, protocol.halves) == protocol.data_sha256


def test_the_generated_data_is_that_of_the_frozen_protocol(testbed_data: Any, protocol_path: Path) -> None:
    assert data_sha256(testbed_data) == read_protocol(protocol_path).data_sha256


def test_the_second_testbed_s_data_is_that_of_its_frozen_protocol(second_data: Any, protocol_path: Path) -> None:
    protocol = read_protocol(protocol_path.with_name("testbed-2.yaml"))
    assert protocol.halves == ("confirm-2",)
    assert data_sha256(second_data) == protocol.data_sha256


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("caesar_cipher", {}, "different prompts with answers of their own among"),
        ("gcd", {}, "different prompts with answers of their own among"),
        ("letter_jumble", {}, r"half or more of \d+ held-out answers stands in answers that may be trained on"),
    ],
)
def test_families_whose_answers_can_be_learnt_by_heart_are_refused(name: str, options: Any, message: str) -> None:
    """The first testbed's flaw, a family of few answers, and one whose answers are parts of one book."""
    with pytest.raises(DataError, match=f"{name}: .*{message}"):
        parted(Family(name=name, pool=900, options=options), seed=7)


def test_pools_are_full_and_no_prompt_is_on_both_sides(testbed_data: Any) -> None:
    for name in FIRST_HALVES:
        data = read_half(testbed_data, name)
        assert list(data.families) == sorted(family.name for family in families_of(name))
        for family in data.families.values():
            train = [record.prompt_hash for record in family.train.records]
            test = [record.prompt_hash for record in family.test]
            assert len(set(train)) == len(train) == family.family.pool + CALIBRATION_SIZE
            assert len(set(test)) == len(test) == TEST_SIZE
            assert not set(train) & set(test)


Rows = list[dict[str, Any]]


Change = Callable[[Rows, dict[str, Any]], Rows]


def damaged(data: Path, tmp_path: Path, name: str, change: Change, *, told: bool) -> Path:
    """A copy of the data with other held-out rows of a family; `told` says whether the manifest agrees."""
    copy = shutil.copytree(data, tmp_path / "data")
    path = copy / f"{name}.test.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    trained = json.loads(gzip.decompress((copy / f"{name}.train.jsonl.gz").read_bytes()).splitlines()[0])
    text = "".join(json.dumps(row) + "\n" for row in change(rows, trained)).encode()
    path.write_bytes(gzip.compress(text))
    if told:
        manifest = json.loads((copy / "manifest.json").read_bytes())
        manifest["files"][path.name]["sha256"] = sha256_hex(text)
        (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return copy


def test_a_changed_file_is_refused(testbed_data: Any, tmp_path: Path) -> None:
    copy = damaged(testbed_data, tmp_path, "gcd", lambda rows, _: rows[:-1], told=False)
    with pytest.raises(ArtefactError, match=r"gcd.test.jsonl.gz: isn't the file"):
        read_half(copy, "confirm")


def test_a_held_out_prompt_in_the_pool_is_refused_though_the_manifest_agrees(testbed_data: Any, tmp_path: Path) -> None:
    copy = damaged(testbed_data, tmp_path, "gcd", lambda rows, trained: [*rows[:-1], trained], told=True)
    with pytest.raises(DataError, match="1 held-out prompts may be trained on"):
        read_half(copy, "confirm")


def test_a_held_out_answer_in_the_pool_is_refused_though_the_manifest_agrees(second_data: Any, tmp_path: Path) -> None:
    def known(rows: Rows, trained: dict[str, Any]) -> Rows:
        return [rows[0] | {name: trained[name] for name in ("completion", "answer")}, *rows[1:]]

    copy = damaged(second_data, tmp_path, "products", known, told=True)
    with pytest.raises(DataError, match="products: 1 held-out answers may be trained on"):
        read_half(copy, "confirm-2")

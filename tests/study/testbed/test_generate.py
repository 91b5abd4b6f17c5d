import gzip
import json
import shutil

import pytest

from calibudget.errors import ArtefactError, DataError
from calibudget.study.testbed.families import CALIBRATION_SIZE, COMPANION, HALVES, TEST_SIZE, families_of, first_seed
from calibudget.study.testbed.generate import data_sha256, read_half
from calibudget.study.testbed.protocol import read_protocol

pytestmark = pytest.mark.slow


def test_two_disjoint_halves_of_eight_families_with_unequal_pools():
    names = [[family.name for family in half] for half in HALVES.values()]
    assert [len(set(half)) for half in names] == [8, 8]
    assert not set(names[0]) & set(names[1])
    for half in HALVES.values():
        sizes = [family.pool for family in half]
        assert min(sizes) == 900
        assert max(sizes) == 6000
    seeds = [first_seed(family) for family in [*HALVES["choose"], *HALVES["confirm"], COMPANION]]
    assert len(set(seeds)) == 17


def test_the_generated_data_is_that_of_the_frozen_protocol(testbed_data, protocol_path):
    assert data_sha256(testbed_data) == read_protocol(protocol_path).data_sha256


def test_pools_are_full_and_no_prompt_is_on_both_sides(testbed_data):
    for name in HALVES:
        data = read_half(testbed_data, name)
        assert list(data.families) == sorted(family.name for family in families_of(name))
        for family in data.families.values():
            train = [record.prompt_hash for record in family.train.records]
            test = [record.prompt_hash for record in family.test]
            assert len(set(train)) == len(train) == family.family.pool + CALIBRATION_SIZE
            assert len(set(test)) == len(test) == TEST_SIZE
            assert not set(train) & set(test)


def _damaged(testbed_data, tmp_path, change):
    copy = tmp_path / "data"
    shutil.copytree(testbed_data, copy)
    path = copy / "gcd.test.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    train = json.loads(gzip.decompress((copy / "gcd.train.jsonl.gz").read_bytes()).splitlines()[0])
    text = "".join(json.dumps(row) + "\n" for row in change(rows, train)).encode()
    path.write_bytes(gzip.compress(text))
    return copy, path, text


def test_a_changed_file_is_refused(testbed_data, tmp_path):
    copy, _, _ = _damaged(testbed_data, tmp_path, lambda rows, _train: rows[:-1])
    with pytest.raises(ArtefactError, match=r"gcd.test.jsonl.gz: isn't the file"):
        read_half(copy, "confirm")


def test_a_held_out_prompt_in_the_pool_is_refused_though_the_manifest_agrees(testbed_data, tmp_path):
    from calibudget.store import sha256_hex

    copy, path, text = _damaged(testbed_data, tmp_path, lambda rows, train: [*rows[:-1], train])
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["files"][path.name]["sha256"] = sha256_hex(text)
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match="1 held-out prompts may be trained on"):
        read_half(copy, "confirm")

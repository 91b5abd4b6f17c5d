"""The table on disk gives what a sort in memory gives, and a source split through files is split as in memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.records import Split
from calibudget.sources import candidates, compression, identity_table, json_files
from calibudget.sources.identity_table import ROW, IdentityTable, among, same_as_before, sorted_rows
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source

Write = Callable[..., Path]


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def filled(numbers: list[int]) -> IdentityTable:
    made = IdentityTable()
    for at, number in enumerate(numbers):
        row = np.zeros(1, dtype=ROW)
        for column, value in (("key", number), ("text", -number), ("prompt", number % 7)):
            row[column] = np.frombuffer(digest(value), dtype="V32")
        row["at"], row["file"], row["answer"] = at, number % 3, number % 5 - 1
        row["name"] = made.add_names([f"name-{number}"])
        made.add_rows(row)
    return made


@pytest.mark.parametrize("buffer", [10, 64, 100_000])
def test_rows_come_back_in_key_order_and_equal_keys_as_they_were_added(
    monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    monkeypatch.setattr(identity_table, "BUFFER", buffer)
    numbers = [number % 400 for number in range(1000)]
    random.Random(0).shuffle(numbers)  # noqa: S311
    made = filled(numbers)
    expected = sorted(((digest(number), at, number) for at, number in enumerate(numbers)), key=lambda row: row[0])
    for _ in range(2):  # a table can be gone through again
        rows = np.concatenate(list(made.parts()))
        assert [(row["key"].tobytes(), int(row["at"])) for row in rows] == [row[:2] for row in expected]
    assert [made.name(int(row["name"])) for row in rows] == [f"name-{number}" for _, _, number in expected]
    assert rows["file"].tolist() == [number % 3 for _, _, number in expected]
    assert rows["answer"].tolist() == [number % 5 - 1 for _, _, number in expected]
    assert made.count == 1000
    assert int(same_as_before(rows["key"]).sum()) == 600


def test_keys_that_share_their_first_bytes_are_told_apart() -> None:
    rows = np.zeros(4, dtype=ROW)
    keys = [b"\x01" * 8 + bytes([last]) * 24 for last in (9, 2, 9, 5)]
    rows["key"] = np.frombuffer(b"".join(keys), dtype="V32")
    rows["at"] = range(4)
    found = sorted_rows(rows)
    assert found["at"].tolist() == [1, 3, 0, 2]
    assert same_as_before(found["key"]).tolist() == [False, False, False, True]
    assert among(rows["key"], frozenset({keys[1], b"\x01" * 32})).tolist() == [False, True, False, False]
    assert not among(rows["key"], frozenset()).any()


@pytest.mark.parametrize("policy", ["drop", "keep"])
@pytest.mark.parametrize("id_field", [None, "n"])
def test_a_source_split_through_files_is_split_as_in_memory(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, policy: str, id_field: str | None
) -> None:
    rows = [{"prompt": f"p {n % 90}", "completion": f"c {n % 130}", "n": f"r{n % 130}.{n % 90}"} for n in range(300)]
    rows += [{**row, "more": n} for n, row in enumerate(rows[::3])]  # type: ignore[dict-item]
    write("rows.jsonl", rows)

    def split() -> Split:
        spec = SourceSpec(label="s", path="rows.jsonl", duplicates=policy, id_field=id_field)  # type: ignore[arg-type]
        source = open_source(spec, tmp_path, selection_seed=3)
        return Parting(source).draw(split_seed=4, calibration_size=20).split()

    held = split()
    monkeypatch.setattr(identity_table, "BUFFER", 7)
    monkeypatch.setattr(candidates, "_HELD", 11)
    monkeypatch.setattr(candidates, "_CHUNK", 5)
    spilled = split()
    assert held.calibration == spilled.calibration
    assert list(held.candidates) == list(spilled.candidates)
    assert list(held.candidate_ids) == [record.record_id for record in spilled.candidates]
    assert held.candidate_ids[3:9] == spilled.candidate_ids[3:9] == tuple(spilled.candidate_ids)[3:9]
    assert spilled.candidates[4] == held.candidates[4]
    assert (held.duplicates, held.shared_prompts) == (spilled.duplicates, spilled.shared_prompts)
    assert held.duplicates == 100
    assert held.pool_size == len(spilled.candidates) > 100
    wanted = spilled.candidate_ids[2:30:9]
    assert set(candidates.chosen_records(spilled.candidates, wanted)) == set(wanted)


@pytest.mark.parametrize("own", [None, "n"], ids=["digests", "own ids"])
def test_a_record_that_changed_since_the_pass_is_noticed(tmp_path: Path, write: Write, own: str | None) -> None:
    path = write("rows.jsonl", [{"prompt": f"p{n}", "completion": "c", "n": n} for n in range(9)])
    source = open_source(SourceSpec(label="s", path="rows.jsonl", id_field=own), tmp_path, selection_seed=0)
    split = Parting(source).draw(split_seed=0, calibration_size=0).split()
    assert len(list(split.candidates)) == 9
    path.write_text(path.read_text().replace("p7", "p8"))
    with pytest.raises(ValueError, match=r"^source 's': rows\.jsonl:8: isn't what it was when the source was read"):
        list(split.candidates)
    path.write_text(json.dumps({"prompt": "p0", "completion": "c"}))
    with pytest.raises(ValueError, match="isn't what it was"):
        list(split.candidates)


def test_going_through_a_pool_reads_a_compressed_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": f"p{n}", "completion": "c", "n": n, "x": [n / 7, None, "\u00e9"]} for n in range(300)]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    source = open_source(SourceSpec(label="s", path="rows.jsonl.gz"), tmp_path, selection_seed=3)
    pool = Parting(source).draw(split_seed=4, calibration_size=20).split().candidates
    monkeypatch.setattr(candidates, "_CHUNK", 7)
    monkeypatch.setattr(candidates, "_WAITING", 500)
    opened = []

    def counting(*given: Any, **how: Any) -> Any:
        opened.append(given)
        return compression.open_plain(*given, **how)

    monkeypatch.setattr(json_files, "open_plain", counting)
    found = list(pool)
    assert len(opened) == 1
    assert [record.record_id for record in found] == list(pool.ids)  # type: ignore[attr-defined]
    assert all(record.original == rows[int(str(record.original["n"]))] for record in found)

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.errors import ArtefactError
from testbed.results import Results

BINDING = {"protocol": "a" * 64, "data": "b" * 64}


def test_a_line_is_found_by_every_reader_and_never_added_twice(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = Results.create(path, BINDING)
    other = Results(path)
    assert first.add("run-1", {"nll": 1.5})["nll"] == 1.5
    assert other.find("run-1") == {"key": "run-1", "nll": 1.5}
    assert other.add("run-1", {"nll": 9.0})["nll"] == 1.5
    assert len(path.read_bytes().splitlines()) == 2
    assert [line["key"] for line in first.lines("run")] == ["run-1"]
    assert list(first.lines("cell")) == []


def test_a_torn_line_is_cut_away_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results.create(path, BINDING)
    results.add("run-1", {"nll": 1.5})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key":"run-2","nl')
    reopened = Results.create(path, BINDING)
    assert reopened.find("run-2") is None
    assert path.read_bytes() == whole
    reopened.add("run-2", {"nll": 2.0})
    assert [json.loads(line)["key"] for line in path.read_bytes().splitlines()] == ["header", "run-1", "run-2"]


def test_results_of_another_protocol_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results.create(path, BINDING)
    with pytest.raises(ArtefactError, match="another protocol"):
        Results.create(path, BINDING | {"protocol": "c" * 64})


def test_merging_keeps_the_first_files_line_and_refuses_another_protocol(tmp_path: Path) -> None:
    one = Results.create(tmp_path / "one.jsonl", BINDING)
    other = Results.create(tmp_path / "other.jsonl", BINDING)
    one.add("run-1", {"nll": 1.5})
    other.add("run-1", {"nll": 9.0})
    other.add("run-2", {"nll": 2.0})
    merged = Results.merge([tmp_path / "one.jsonl", tmp_path / "other.jsonl"], tmp_path / "all.jsonl")
    assert {line["key"]: line["nll"] for line in merged.lines("run")} == {"run-1": 1.5, "run-2": 2.0}
    assert Results.create(tmp_path / "all.jsonl", BINDING).find("run-2") is not None
    Results.create(tmp_path / "stranger.jsonl", BINDING | {"data": "d" * 64})
    with pytest.raises(ArtefactError, match=r"stranger\.jsonl: belongs to another"):
        Results.merge([tmp_path / "one.jsonl", tmp_path / "stranger.jsonl"], tmp_path / "none.jsonl")
    with pytest.raises(ArtefactError, match="exists already"):
        Results.merge([tmp_path / "one.jsonl"], tmp_path / "all.jsonl")

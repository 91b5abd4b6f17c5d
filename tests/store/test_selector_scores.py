"""`selector.parquet`, and files of scores made elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError
from calibudget.records import SelectorScores
from calibudget.store.parquet import write_table
from calibudget.store.selector_scores import Value, read_selector, read_values, write_selector

PARTS = {
    "scores": SelectorScores(parameters={"order": "descending"}, scores={"piqa": {"b": 2.0, "a": -1.5}, "arc": {}}),
    "influence": SelectorScores(parameters={"shards": 4}, scores={"piqa": {"a": 0.25}}),
}


@pytest.fixture
def path(tmp_path: Path) -> Any:
    write_selector(tmp_path / "selector.parquet", PARTS)
    return tmp_path / "selector.parquet"


def rewrite(path: Any, change: Any, selectors: Any = None) -> None:
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    named = selectors or {name: dict(part.parameters) for name, part in PARTS.items()}
    metadata = {"schema": "calibudget.selector/1", "selectors": named}
    write_table(path, pa.Table.from_pylist(rows, table.schema), metadata, dictionary=["selector", "source"])


def test_scores_come_back_in_order(path: Any, dictionaries: Any) -> None:
    assert dictionaries(path) == [["selector", "source"]]
    found = read_selector(path)
    assert list(found) == ["influence", "scores"]
    assert found["scores"].scores == {"piqa": {"a": -1.5, "b": 2.0}}
    assert found["influence"].parameters == {"shards": 4}
    rewrite(path, list)  # the control
    assert read_selector(path) == found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.reverse(), "row 2: rows must ascend"),
        (lambda rows: rows.append(dict(rows[-1])), "row 4: rows must ascend"),
        (lambda rows: rows[0].update(score=float("nan")), "row 1: the score of 'a' must be finite"),
        (lambda rows: rows[0].update(selector="best"), "row 1: the metadata names no selector 'best'"),
    ],
)
def test_rows_that_cant_be_are_refused(path: Any, change: Any, words: str) -> None:
    rewrite(path, change)
    with pytest.raises(ArtefactError, match=words):
        read_selector(path)


def test_values_are_read_from_any_column_order_and_type(tmp_path: Path) -> None:
    (tmp_path / "v.jsonl").write_text('{"score": 2, "record_id": "a", "source": "s", "why": null}\n\n')
    table = pa.table({"record_id": ["a"], "score": [7.5], "source": ["s"]})
    pq.write_table(table, tmp_path / "v.parquet")
    value = Value(source="s", record_id="a", score=2.0)
    assert list(read_values(tmp_path / "v.jsonl")) == [("v.jsonl:1", value)]
    assert list(read_values(tmp_path / "v.parquet")) == [("v.parquet, row 1", replace(value, score=7.5))]


def test_values_that_cant_be_read_are_refused_by_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, words in [
        ('{"record_id": "a", "score": 1}', ":1: source: is missing"),
        ('{"source": "s", "record_id": "a", "score": "1"}', ":1: score: must be a number"),
        ("[1]", ":1: "),
        ("", "holds no scores"),
    ]:
        with subtests.test(text=text):
            (tmp_path / "v.jsonl").write_text(text + "\n")
            with pytest.raises(ArtefactError, match=words):
                list(read_values(tmp_path / "v.jsonl"))


def test_a_record_twice_and_other_faults_name_file_and_place(path: Path, tmp_path: Path) -> None:
    given = tmp_path / "values.jsonl"
    row = '{"source": "a", "record_id": "%s", "score": 1}\n'
    given.write_text(row % 1 + row % 2)
    assert [(place, value.record_id) for place, value in read_values(given)] == [
        ("values.jsonl:1", "1"),
        ("values.jsonl:2", "2"),
    ]
    given.write_text(row % 1 + row % 2 + row % 1)
    with pytest.raises(ArtefactError, match=r"^values\.jsonl:3: '1' of a stands at values\.jsonl:1 already$"):
        list(read_values(given))
    rewrite(path, lambda rows: rows[0].update(score=float("inf")))
    with pytest.raises(ArtefactError, match=r"^selector\.parquet, row 1: the score of 'a' must be finite"):
        read_selector(path)
    rewrite(path, list, selectors={"scores": 5})
    with pytest.raises(ArtefactError, match=r"^selector\.parquet: schema metadata"):
        read_selector(path)

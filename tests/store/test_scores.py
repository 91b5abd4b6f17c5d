from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError
from calibudget.records import ANSWER_CAP
from calibudget.store.canonical import sha256_hex
from calibudget.store.scores import read_scores, read_scores_file, scores_sha256, write_scores

PROVENANCE = {"model": {"name": "fake"}, "precision": "float32"}


@pytest.fixture
def path(tmp_path: Path, scores: Any) -> Any:
    path = tmp_path / "scores.parquet"
    write_scores(path, scores, error="nll+wrong", provenance=PROVENANCE)
    return path


def ordered(scores: Any) -> Any:
    return tuple(sorted(scores, key=lambda score: (score.source, score.record_id)))


def lines(tmp_path: Path, *rows: Any) -> Any:
    path = tmp_path / "made-elsewhere.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" if isinstance(row, dict) else row for row in rows))
    return path


def test_scores_come_back_with_their_provenance(path: Any, scores: Any) -> None:
    found = read_scores(path)
    assert found.scores == ordered(scores)
    assert found.error == "nll+wrong"
    assert found.provenance == PROVENANCE
    assert read_scores_file(path) == found


def test_the_columns_are_the_contract(path: Any) -> None:
    table = pq.read_table(path)
    assert {field.name: str(field.type) for field in table.schema} == {
        "source": "string",
        "record_id": "string",
        "response_tokens": "int64",
        "nll": "double",
        "correct": "bool",
        "prediction": "string",
        "error": "double",
    }
    assert json.loads(table.schema.metadata[b"calibudget"])["provenance"] == PROVENANCE


def test_the_bytes_depend_on_nothing_but_the_content(path: Path, tmp_path: Path, scores: Any) -> None:
    write_scores(tmp_path / "again.parquet", reversed(scores), error="nll+wrong", provenance=PROVENANCE)
    assert (tmp_path / "again.parquet").read_bytes() == path.read_bytes()


def test_the_other_rule_makes_other_errors_of_the_same_file(path: Any, scores: Any) -> None:
    found = read_scores_file(path, error="nll")
    assert found.error == "nll"
    assert [score.error for score in found.scores] == [score.nll for score in ordered(scores)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nll": float("nan")}, "nll: must be a finite number"),
        ({"nll": -0.5}, "nll: must be at least"),
        ({"correct": None}, "correct: must be true or false under the error rule nll+wrong"),
        ({"error": 5.0}, "error: must be"),
        ({"source": "a/b"}, "source: the source label 'a/b'"),
    ],
)
def test_scores_that_cant_be_are_neither_written_nor_read(path: Path, scores: Any, change: Any, said: str) -> None:
    before = path.read_bytes()
    broken = [*scores[1:], replace(scores[0], **change)]
    with pytest.raises(ArtefactError, match=r"^scores\.parquet: (score 5: |source: )") as caught:
        write_scores(path, broken, error="nll+wrong", provenance=PROVENANCE)
    assert said in str(caught.value)
    assert path.read_bytes() == before

    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[-1].update(change)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    for read in (read_scores, read_scores_file):
        with pytest.raises(ArtefactError, match=r"^scores\.parquet(, row 6)?: ") as caught:
            read(path)
        assert said in str(caught.value)


def test_rows_out_of_order_or_twice_are_refused(path: Any) -> None:
    table = pq.read_table(path)
    pq.write_table(table.take([1, 0, 2, 3, 4, 5]), path)
    with pytest.raises(ArtefactError, match="rows must ascend"):
        read_scores(path)
    pq.write_table(table.take([0, 0]), path)
    with pytest.raises(ArtefactError, match=r"row 2: record_id: .* was scored at .*row 1 already"):
        read_scores(path)
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(ArtefactError, match="holds no scores"):
        read_scores(path)


def test_json_lines_made_elsewhere(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        {"source": "b", "nll": 1, "correct": False},
        "\n",
        {"source": "a", "nll": 0.5, "correct": True, "record_id": "x", "prediction": "7", "response_tokens": 3},
    )
    found = read_scores_file(path)
    assert found.error == "nll+wrong"
    assert found.provenance is None
    a, b = found.scores
    assert (a.source, a.record_id, a.nll, a.error, a.prediction, a.response_tokens) == ("a", "x", 0.5, 0.5, "7", 3)
    assert (b.source, b.record_id, b.nll, b.error, b.prediction, b.response_tokens) == ("b", "row-1", 1.0, 2.0, None, 0)


def test_an_answers_nats_are_a_rule_that_needs_its_length(
    tmp_path: Path, path: Path, scores: Any, dictionaries: Any
) -> None:
    assert dictionaries(path) == [["source"]]
    found = read_scores_file(path, error="nll_per_answer")
    assert [score.error for score in found.scores] == [4 * score.nll for score in ordered(scores)]
    whole = {"source": "a", "nll": 0.5, "response_tokens": 3, "record_id": "x"}
    for given, made in [(whole, 1.5), (whole | {"nll": -0.0}, 0.0), (whole | {"nll": 1e9}, ANSWER_CAP)]:
        (score,) = read_scores_file(lines(tmp_path, given), error="nll_per_answer").scores
        assert repr(score.error) == repr(made)
    for tokens in (0, None):
        with pytest.raises(ArtefactError, match=r":1: response_tokens: the error rule nll_per_answer needs the ans"):
            read_scores_file(lines(tmp_path, whole | {"response_tokens": tokens}), error="nll_per_answer")
    write_scores(path, [replace(scores[0], correct=None, error=scores[0].nll)], error="nll", provenance=PROVENANCE)
    with pytest.raises(ArtefactError, match=r"^scores\.parquet: 'piqa-\d+' of 'piqa': correct: must be true or false"):
        read_scores_file(path, error="nll+wrong")
    for provenance, told in (({}, "None"), ({"model": "name"}, "'name'")):
        write_scores(path, scores, error="nll+wrong", provenance=provenance)
        for read in (read_scores, read_scores_file):
            with pytest.raises(ArtefactError, match=rf"^scores\.parquet: schema metadata: .* `model`, not {told}"):
                read(path)


def test_without_correctness_the_rule_is_the_nll_and_a_mixture_is_refused(tmp_path: Path) -> None:
    rows = [{"source": "a", "nll": 0.5, "correct": None}, {"source": "a", "nll": 0.25}]
    assert read_scores_file(lines(tmp_path, *rows)).error == "nll"
    with pytest.raises(ArtefactError, match=":1: correct"):
        read_scores_file(lines(tmp_path, *rows), error="nll+wrong")
    mixed = lines(tmp_path, rows[0], {"source": "a", "nll": 1.0, "correct": True})
    with pytest.raises(ArtefactError, match=r"^made-elsewhere\.jsonl:1: `correct` is missing while other rows have it"):
        read_scores_file(mixed)
    assert [score.error for score in read_scores_file(mixed, error="nll").scores] == [0.5, 1.0]


def test_faults_of_json_lines_are_named_by_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for row, said in [
        ('{"source": "a", "nll": NaN, "correct": true}\n', ":2: not valid JSON: NaN"),
        ("[1]\n", ":2: the root must be an object"),
        ({"source": "a", "correct": True}, ":2: nll: is missing"),
        ({"source": "a", "nll": 0.5, "correct": True, "recordid": "x"}, ":2: recordid: is not a field"),
        ({"source": "A", "nll": 0.5, "correct": True}, "differ only by case"),
        ({"source": "a", "nll": 0.5, "correct": True, "record_id": "x"}, ":2: record_id: 'x' was scored at "),
        ({"source": "a", "nll": 0.5, "correct": False, "error": 0.5}, ":2: error: must be 1.5 by the rule"),
    ]:
        with subtests.test(row=row):
            path = lines(tmp_path, {"source": "a", "nll": 0.1, "correct": True, "record_id": "x"}, row)
            with pytest.raises(ArtefactError, match=r"^made-elsewhere\.jsonl:") as caught:
                read_scores_file(path)
            assert said in str(caught.value)


def test_parquet_made_elsewhere(tmp_path: Path) -> None:
    pq.write_table(pa.table({"source": ["a", "a"], "nll": pa.array([1.5, 2.0], pa.float32())}), tmp_path / "s.parquet")
    found = read_scores_file(tmp_path / "s.parquet")
    assert (found.error, found.provenance) == ("nll", None)
    assert [score.nll for score in found.scores] == [1.5, 2.0]


def test_the_digest_of_scores_is_that_of_canonical_rows(scores: Any) -> None:
    one = scores[1]
    expected = f'[["{one.record_id}",4,0.3333333333333333,false,null,1.3333333333333333]]'
    assert scores_sha256([one]) == sha256_hex(expected.encode())
    assert scores_sha256(scores[:3]) == scores_sha256(reversed(scores[:3]))


def test_metadata_that_is_not_what_was_written_is_refused(path: Path, tmp_path: Path) -> None:
    table = pq.read_table(path)
    edited = table.schema.metadata[b"calibudget"].replace(b"fake", b"real")
    pq.write_table(table.replace_schema_metadata({b"calibudget": edited}), path)
    for read in (read_scores, read_scores_file):
        with pytest.raises(
            ArtefactError, match=r"^scores\.parquet: the schema metadata 'calibudget' isn't what was written"
        ):
            read(path)

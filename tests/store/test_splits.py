from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.keys import order_key
from calibudget.store.parquet import write_table
from calibudget.store.splits import TokenCount, _ids, read_splits, write_splits

SEEDS: dict[str, Any] = {"split_seed": 42, "selection_seed": 42}
METADATA = {"schema": "calibudget.splits/1", **SEEDS}


@pytest.fixture
def path(tmp_path: Path, splits: Any) -> Any:
    path = tmp_path / "splits.parquet"
    write_splits(path, splits, **SEEDS)
    return path


def rewrite(path: Any, change: Any) -> None:
    """Write the file anew with its rows changed, as one who knows the format would."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    write_table(path, pa.Table.from_pylist(rows, table.schema), METADATA, dictionary=["source", "role"])


def test_ids_come_back_in_key_order(path: Any, splits: Any) -> None:
    found = read_splits(path)
    assert (found.split_seed, found.selection_seed) == (42, 42)
    assert list(found.sources) == ["boolq", "piqa"]
    assert found.pool_sizes == {"boolq": 10, "piqa": 20}
    for split in splits:
        assert found.sources[split.source].calibration == tuple(record.record_id for record in split.calibration)
        assert tuple(found.sources[split.source].candidates) == tuple(record.record_id for record in split.candidates)
        assert found.sources[split.source].tokens == {}


def test_the_columns_are_the_contract(path: Any) -> None:
    table = pq.read_table(path)
    assert table.schema.names == ["source", "record_id", "role", "key", "prompt_tokens", "response_tokens"]
    assert table.schema.field("key").type == pa.binary(32)
    row = table.to_pylist()[0]
    assert row["role"] == "calibration"
    assert row["key"] == order_key("calibration", 42, "boolq", row["record_id"])
    assert row["prompt_tokens"] is None


def test_the_bytes_depend_on_nothing_but_the_content(path: Path, tmp_path: Path, splits: Any) -> None:
    write_splits(tmp_path / "again.parquet", list(reversed(splits)), **SEEDS)
    assert (tmp_path / "again.parquet").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[4].update(role="test"), "row 5: column 'role': must be 'calibration', "),
        (lambda rows: rows[4].update(record_id=""), "row 5: column 'record_id': is empty"),
        (lambda rows: rows[4].update(record_id=rows[0]["record_id"]), "column 'record_id': 'boolq-"),
        (lambda rows: rows[4].update(record_id="other"), "row 5: column 'key': isn't the key of 'other'"),
        (lambda rows: rows[0].update(key=b"\0" * 32), "row 1: column 'key': isn't the key"),
        (lambda rows: rows.insert(0, rows.pop()), "row 2: column 'key': rows must ascend"),
        (lambda rows: rows[4].update(prompt_tokens=1), "row 5: column 'prompt_tokens': prompt and response"),
        (lambda rows: rows[4].update(prompt_tokens=-1, response_tokens=1), "column 'prompt_tokens': is negative"),
        (lambda rows: rows[4].update(prompt_tokens=0, response_tokens=0), "column 'response_tokens': must be at"),
    ],
)
def test_rows_that_cant_be_are_named(path: Any, change: Any, said: str) -> None:
    rewrite(path, change)
    with pytest.raises(ArtefactError, match=r"^splits\.parquet, row ") as caught:
        read_splits(path)
    assert said in str(caught.value)


def held_out(split: Any, *numbers: int) -> Any:
    """The split with the calibration records of these numbers held out for evaluation instead."""
    records = [split.calibration[number] for number in numbers]
    evaluation = sorted(records, key=lambda record: order_key("evaluation", 42, split.source, record.record_id))
    return replace(
        split,
        calibration=tuple(record for record in split.calibration if record not in records),
        evaluation=tuple(evaluation),
    )


def test_every_role_and_count_comes_back_of_sources_that_lack_some(
    tmp_path: Path, splits: Any, dictionaries: Any
) -> None:
    piqa, boolq = splits
    own = sorted(piqa.candidates, key=lambda record: order_key("selection", 42, "A", record.record_id))
    bare = replace(piqa, source="A", calibration=(), candidates=tuple(own))
    written = [held_out(piqa, 0, 2), replace(held_out(boolq, 0, 1, 2), candidates=()), bare]
    ids = [record.record_id for record in (*piqa.calibration, *piqa.candidates[:2])]
    counts = {record_id: TokenCount(number, number + 1) for number, record_id in enumerate(ids)}
    write_splits(tmp_path / "splits.parquet", written, tokens={"piqa": counts}, **SEEDS)
    found = read_splits(tmp_path / "splits.parquet")
    assert list(found.sources) == ["A", "boolq", "piqa"]
    for split in written:
        source = found.sources[split.source]
        for name in ("calibration", "candidates", "evaluation"):
            assert list(getattr(source, name)) == [record.record_id for record in getattr(split, name)]
        assert source.tokens == (counts if split.source == "piqa" else {})
    assert dictionaries(tmp_path / "splits.parquet") == [["source", "role"]]
    write_splits(tmp_path / "none.parquet", [], **SEEDS)
    assert read_splits(tmp_path / "none.parquet").sources == {}


def test_a_record_that_evaluates_is_no_candidate(tmp_path: Path, splits: Any) -> None:
    path = tmp_path / "splits.parquet"
    write_splits(path, [held_out(split, 0, 2) for split in splits], **SEEDS)

    def repeat(rows: Any, source: str, role: str) -> None:
        row = [row for row in rows if (row["source"], row["role"]) == (source, role)][1]
        other = {"candidate": "evaluation", "evaluation": "candidate"}[role]
        key = order_key({"candidate": "selection"}.get(other, other), 42, source, row["record_id"])
        rows.append(row | {"role": other, "key": key})
        rows.sort(key=lambda row: (row["source"], row["role"], row["key"]))
        repeated.append(row["record_id"])

    for source in ("boolq", "piqa"):
        for role in ("candidate", "evaluation"):
            repeated: list[str] = []
            write_splits(path, [held_out(split, 0, 2) for split in splits], **SEEDS)
            rewrite(path, lambda rows, source=source, role=role: repeat(rows, source, role))
            with pytest.raises(ArtefactError) as caught:
                read_splits(path)
            said = f"{repeated[0]!r} of the source {source!r} is a candidate and evaluates"
            assert str(caught.value) == f"splits.parquet: column 'record_id': {said}"


def test_records_out_of_the_order_of_their_keys_or_twice_are_not_written(tmp_path: Path, splits: Any) -> None:
    one, two, *_ = splits[0].candidates
    for candidates in ((two, one), (one, one)):
        with pytest.raises(InputError, match=r"^the candidate records of 'piqa' aren't in the order of their keys$"):
            write_splits(tmp_path / "splits.parquet", [replace(splits[0], candidates=candidates)], **SEEDS)


def test_a_moved_record_is_noticed_by_its_key(path: Any) -> None:
    def swap_roles(rows: Any) -> None:
        rows[2]["role"] = "candidate"

    rewrite(path, swap_roles)
    with pytest.raises(ArtefactError, match="row 3: column 'key'"):
        read_splits(path)


def test_labels_that_only_case_parts_are_refused(path: Any) -> None:
    def rename(rows: Any) -> None:
        for row in rows:
            if row["source"] == "piqa":
                role = "calibration" if row["role"] == "calibration" else "selection"
                row.update(source="boolQ", key=order_key(role, 42, "boolQ", row["record_id"]))
        rows.sort(key=lambda row: (row["source"], row["role"], row["key"]))

    rewrite(path, rename)
    with pytest.raises(ArtefactError, match=r"column 'source': .*differ only by case"):
        read_splits(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop_columns("role"), "the columns must be source, record_id, role"),
        (lambda table: table.append_column("extra", pa.nulls(table.num_rows)), "response_tokens, extra"),
        (lambda table: table.set_column(3, "key", table["key"].cast(pa.binary())), "column 'key' must be"),
        (lambda table: table.set_column(0, "source", pa.nulls(table.num_rows, pa.string())), "without nulls"),
        (lambda table: table.set_column(4, "prompt_tokens", pa.nulls(table.num_rows, pa.int32())), "int64, not int32"),
    ],
)
def test_columns_that_arent_the_contract_are_named(path: Any, change: Any, said: str) -> None:
    write_table(path, change(pq.read_table(path)), METADATA, dictionary=[])
    with pytest.raises(ArtefactError, match=r"^splits\.parquet: ") as caught:
        read_splits(path)
    assert said in str(caught.value)


def test_metadata_that_is_missing_of_another_schema_or_edited_is_refused(path: Any) -> None:
    table = pq.read_table(path)
    write_table(path, table, {**METADATA, "schema": "calibudget.scores/1"}, dictionary=[])
    with pytest.raises(ArtefactError, match=r"schema metadata: schema: must be 'calibudget\.splits/1'"):
        read_splits(path)
    write_table(path, table, {**METADATA, "split_seed": "42"}, dictionary=[])
    with pytest.raises(ArtefactError, match="split_seed: must be an integer"):
        read_splits(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(ArtefactError, match="lacks the key 'calibudget'"):
        read_splits(path)
    edited = table.schema.metadata[b"calibudget"].replace(b":42", b":43")
    pq.write_table(table.replace_schema_metadata({b"calibudget": edited}), path)
    with pytest.raises(ArtefactError, match="isn't what was written"):
        read_splits(path)


def test_ids_stay_in_their_column_and_read_like_a_tuple() -> None:
    ids = tuple(f"id-{number}" for number in range(9))
    column = pa.chunked_array([["x", *ids[:4]], [*ids[4:], "y"]])
    found = _ids(column, range(1, 10))
    assert tuple(found) == ids
    assert (found[0], found[-1], found[4]) == (ids[0], ids[-1], ids[4])
    for piece in (slice(0, 3), slice(2, 100), slice(None, None, 2), slice(None, None, -1), slice(5, 2), slice(3, None)):
        assert found[piece] == ids[piece]
    assert ids[5] in found
    with pytest.raises(IndexError):
        found[9]

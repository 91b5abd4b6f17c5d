"""Duplicates: drop, keep, refuse, none of which depends on the order read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from calibudget.errors import DataError
from calibudget.sources.whole_source import SourceRead

Write = Callable[..., Path]
Read = Callable[..., SourceRead]

#: Three forms of one record, in the order of their canonical bytes, and another one.
FORMS = [
    {"completion": "b", "note": "1", "prompt": "A  a"},
    {"completion": "b", "note": "2", "prompt": "A a"},
    {"completion": "b", "prompt": "A a "},
]
OTHER = {"prompt": "A a", "completion": "c"}


ORDERS = list(permutations([*FORMS, OTHER]))


def test_drop_keeps_the_record_with_the_smallest_canonical_bytes(write: Write, read: Read) -> None:
    for order in ORDERS:
        write("rows.jsonl", order)
        result = read()
        assert sorted(str(record.original) for record in result.records) == sorted(map(str, [FORMS[0], OTHER])), order
        assert (result.tally.read, result.source.duplicates) == (4, 2)


def test_keep_numbers_the_copies_in_that_order(write: Write, read: Read) -> None:
    for order in ORDERS:
        write("rows.jsonl", order)
        result = read(duplicates="keep")
        ids = {str(record.original): record.record_id for record in result.records}
        bare = ids[str(FORMS[0])]
        assert len(bare) == 64
        assert (ids[str(FORMS[1])], ids[str(FORMS[2])]) == (f"{bare}#2", f"{bare}#3"), order
        assert (result.source.duplicates, len(result.records)) == (2, 4)


def test_refuse_names_both_places(write: Write, read: Read) -> None:
    write("a.jsonl", [OTHER, FORMS[0]])
    write("b.jsonl", [FORMS[1]])
    with pytest.raises(DataError, match=r"source 's': b\.jsonl:1 repeats a\.jsonl:2; remove one, or say"):
        read("*.jsonl", duplicates="refuse")


def test_refuse_accepts_records_that_only_share_a_prompt(write: Write, read: Read) -> None:
    write("rows.jsonl", [FORMS[0], OTHER])
    assert len(read(duplicates="refuse").records) == 2


@pytest.mark.parametrize("policy", ["drop", "keep", "refuse"])
def test_one_own_id_with_two_texts_is_an_error_under_every_policy(write: Write, read: Read, policy: str) -> None:
    write("rows.jsonl", [{"id": 1, **OTHER}, {"id": 2, **OTHER}, {"id": 1, **FORMS[0]}])
    with pytest.raises(DataError, match=r"rows\.jsonl:1 and rows\.jsonl:3 have the id '1' but different text"):
        read(id_field="id", duplicates=policy)


def test_own_ids_of_equal_text_stay_apart_and_equal_ids_of_equal_text_are_duplicates(write: Write, read: Read) -> None:
    write("rows.jsonl", [{"id": "x", **OTHER}, {"id": "y", **OTHER}, {"id": "x", **OTHER, "completion": " c "}])
    assert sorted(record.record_id for record in read(id_field="id").records) == ["x", "y"]
    assert sorted(record.record_id for record in read(id_field="id", duplicates="keep").records) == ["x", "x#2", "y"]


def test_an_own_id_that_looks_like_a_copy_s_is_refused_where_copies_are_numbered(write: Write, read: Read) -> None:
    write("rows.jsonl", [{"id": "x", **OTHER}, {"id": "x#2", **FORMS[0]}])
    assert len(read(id_field="id").records) == 2
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the id 'x#2' looks like a copy's"):
        read(id_field="id", duplicates="keep")

"""One record normalised by itself; the laws of the ids are in tests/property/test_normal_form.py."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.sources.identity import normalise_record


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_the_first_name_that_holds_something_wins() -> None:
    record = normalise_record({"instruction": None, "prompt": "p", "question": "q", "output": "o", "answer": "a"})
    assert (record.instruction, record.response) == ("p", "o")


def test_an_input_is_joined_by_a_line_feed_when_not_empty() -> None:
    assert normalise_record({"instruction": "a", "input": "b", "output": "c"}).record_id == sha256('["a b","c"]')
    assert normalise_record({"instruction": "a", "input": " ", "output": "c"}).record_id == sha256('["a","c"]')


@pytest.mark.parametrize(
    ("fields", "record_id"),
    [({"id": "r1"}, "r1"), ({"record_id": "r2"}, "r2"), ({"id": 7}, "7"), ({"id": "r1", "record_id": "r2"}, "r2")],
)
def test_the_normaliser_honours_an_explicit_id(fields: dict[str, Any], record_id: str) -> None:
    assert normalise_record({"prompt": "a", "response": "b", **fields}).record_id == record_id


def test_a_record_without_a_usable_pair_is_refused(subtests: pytest.Subtests) -> None:
    for fields, message in [
        ({}, "no prompt: none of the fields instruction, prompt, question is there"),
        ({"prompt": "a"}, "no response: .* the record has prompt"),
        ({"prompt": "a", "answer": None}, "no response"),
        ({"prompt": " \n", "answer": "b"}, r"the prompt \(field 'prompt'\) is empty"),
        ({"prompt": "a", "answer": ""}, r"the response \(field 'answer'\) is empty"),
        ({"prompt": ["a"], "answer": "b"}, "must be text, not a list"),
        ({"prompt": "a", "answer": True}, "must be text, not true or false"),
        ({"prompt": "a\0", "answer": "b"}, "NUL"),
        ({"prompt": "a", "answer": "b", "input": 5}, "'input' must hold text, not int"),
        ({"prompt": "a", "answer": "b", "id": True}, "own id must be nonempty text or an integer"),
        ({"prompt": "a", "answer": "b", "id": " "}, "own id must be nonempty text or an integer"),
        ({"prompt": "a", "answer": "b", "id": 1.5}, "own id must be nonempty text or an integer"),
        ({"prompt": "a", "answer": "b", "id": "\udc00"}, "own id can't be used"),
        ({"prompt": "a\ud800", "answer": "b"}, "lone surrogate"),
    ]:
        with subtests.test(fields=fields, message=message), pytest.raises(DataError, match=message):
            normalise_record(fields)  # type: ignore[arg-type]

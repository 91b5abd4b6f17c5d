from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import ArtefactError, InputError
from calibudget.store.canonical import (
    canonical_json,
    compact_json,
    is_sealed,
    loads_object,
    plain_json,
    read_bytes,
    sealed,
    sha256_hex,
)


def test_canonical_form_sorts_keys_by_utf16_and_shortens_numbers() -> None:
    # RFC 8785 3.2.3: a supplementary character sorts below U+FB33, though its code point is larger.
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2, "a": 1e21, "b": 3.0}) == (
        '{"a":1e+21,"b":3,"\U0001f600":2,"\ufb33":1}'.encode()
    )


def test_values_without_a_canonical_form_are_refused(subtests: pytest.Subtests) -> None:
    for value in [math.nan, math.inf, [-math.inf], 2**53, "\ud800", {"\ud800": 1}, {1: 2}, b"bytes", {1, 2}]:
        with subtests.test(value=value), pytest.raises(InputError):
            canonical_json(value)


def test_the_part_without_a_canonical_form_is_named(subtests: pytest.Subtests) -> None:
    for value, message in [
        (
            {"sources": {"a": {"quota": 1, "pool_size": 2**53}}},
            "sources.a.pool_size is 9007199254740992, beyond 2**53 - 1",
        ),
        ({"rows": [1, (2, 10**5000)]}, "rows.1.1 is a number of thousands of digits, beyond 2**53 - 1"),
        ({"a": 1, "b": [math.nan]}, "b.0 has no canonical JSON form: nan"),
        ({"a": {"b": {1: 2}}}, "a.b has no canonical JSON form: object keys must be strings"),
        (-(2**60), "the value is -1152921504606846976, beyond 2**53 - 1, where JSON's integers end"),
    ]:
        with subtests.test(message=message), pytest.raises(InputError, match=f"^{re.escape(message)}"):
            canonical_json(value)


def test_endless_nesting_is_refused() -> None:
    value: list = []  # type: ignore[type-arg]
    value.append(value)
    with pytest.raises(InputError, match="nested too deeply"):
        canonical_json(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_comes_back_bit_for_bit(number: Any) -> None:
    assert float(json.loads(canonical_json(number))) == number


def test_json_that_readers_disagree_about_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for data, said in [
        (b'{"a":1,"a":2}', "'a' is given twice"),
        (b'{"b":{"a":1,"a":1}}', "'a' is given twice"),
        (b"[1]", "root must be an object, not list"),
        (b"null", "root must be an object"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "1e999"),
        (b'{"a":"\xff"}', "utf-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a":"\\ud800"}', "lone surrogate"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"1" * 5_000 + b"}", "digits"),
        (b'{"a":1', "line 1 column"),
        (b'{"a":1}x', "Extra data"),
        (b"", "line 1 column 1"),
    ]:
        with subtests.test(data=data, said=said):
            with pytest.raises(ArtefactError, match=r"^x\.json: ") as caught:
                loads_object(data, "x.json")
            assert said in str(caught.value)


def test_a_paired_surrogate_is_a_character_and_a_long_integer_stays_exact() -> None:
    assert loads_object(b'{"a":"\\ud83d\\ude00","n":9007199254740993}', "x") == {"a": "😀", "n": 9007199254740993}


def test_the_seal_notices_every_edit() -> None:
    value = sealed({"a": 1, "b": {"c": [0.5, 1e17]}}, "seal")
    again = loads_object(canonical_json(value), "x")
    assert value["seal"] == sha256_hex(b'{"a":1,"b":{"c":[0.5,100000000000000000]}}')
    assert is_sealed(value, "seal")
    assert is_sealed(again, "seal")
    assert not is_sealed({**value, "a": 2}, "seal")
    assert not is_sealed({**value, "extra": None}, "seal")
    assert not is_sealed({**value, "seal": "0" * 64}, "seal")
    assert not is_sealed({"a": 1}, "seal")
    assert not is_sealed({**value, "a": 10**400}, "seal")


def test_refusals_say_what_is_wrong_and_where(tmp_path: Path) -> None:
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: canonical_json(float("nan")), InputError, "^the value has no canonical JSON form"),
        (lambda: plain_json(float("-inf")), InputError, "infinity"),
        (lambda: compact_json(float("nan")), ValueError, "not JSON compliant"),
        (lambda: read_bytes(tmp_path / "gone"), ArtefactError, "^gone: can't be read: No such file"),
        (lambda: read_bytes(Path("/dev/null")), ArtefactError, "^null: is no regular file"),
    ]
    for call, error, said in cases:
        with pytest.raises(error, match=said):
            call()
    assert compact_json({"b": "é", "a": 2**70}) == f'{{"b":"é","a":{2**70}}}'
    assert not is_sealed({"n": 10**400, "seal": "x"}, "seal")
    edge = sealed({"n": 2**53 - 1}, "seal")
    assert is_sealed(edge, "seal")
    assert plain_json([b"\xff", (1.5, None)]) == ["/w==", [1.5, None]]

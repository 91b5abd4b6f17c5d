"""What a JSON row may be: own cases by the sections of RFC 8259, accepted with their value or refused with a reason.

The fast parser and the strict one must never disagree: a row is what the strict parser says it is.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import DataError, InputError
from calibudget.sources.json_files import as_row, parse_row
from calibudget.store.canonical import strict_json

NESTING = 20

ACCEPTED: dict[str, tuple[bytes, object]] = {
    "white space around and between": (b' \t\r\n{ "a" \t:\r 1 , "b" : 2 }\n ', {"a": 1, "b": 2}),
    "keys that normalise to one": ('{"\u00e9": 1, "e\u0301": 2}'.encode(), {"\u00e9": 1, "e\u0301": 2}),
    "a key with a colon": (b'{"a:": {"b\\":": ":"}}', {"a:": {'b":': ":"}}),
    "one key at three places": (b'{"a": {"a": 1}, "b": [{"a": 2}]}', {"a": {"a": 1}, "b": [{"a": 2}]}),
    "an integer beyond 64 bits": (b'{"x": 18446744073709551616}', {"x": 2**64}),
    "the largest of 64 bits": (b'{"x": 18446744073709551615}', {"x": 2**64 - 1}),
    "digits that no double holds": (b'{"x": 0.1000000000000000055511151231257827}', {"x": 0.1}),
    "escapes of code units": (rb'{"x": "\u0041\u00e9\u4e2d\uD83D\uDE00"}', {"x": "A\u00e9\u4e2d\U0001f600"}),
    "an escaped backslash before a u": (rb'{"x": "\\ud800"}', {"x": "\\ud800"}),
    "raw characters": ('{"x": "\u00e9\U0001f600\u2028\x7f"}'.encode(), {"x": "\u00e9\U0001f600\u2028\x7f"}),
    "an integer of four thousand digits": (b'{"x": ' + b"9" * 4000 + b"}", {"x": 10**4000 - 1}),
    "text that looks like JSON": (rb'{"x": "{\"a\": 1, \"a\": 2}"}', {"x": '{"a": 1, "a": 2}'}),
    "as deep as it may be": (b'{"x": ' + b"[" * 19 + b"]" * 19 + b"}", None),
}  # fmt: skip

REFUSED: dict[str, tuple[bytes, str]] = {
    "two objects without a space": (b'{"a": 1}{"b": 2}', "Extra data"),
    "two high surrogates": (rb'{"x": "\ud83d\ud83d\ude00"}', "lone surrogate"),
    "invalid UTF-8 after the object": (b'{"x": 1}\xe5', "not valid JSON"),
    "nothing": (b"", "not valid JSON"),
    "an array": (b"[1]", "a row must be an object, not list"),
    "a number": (b"1", "not int"),
    "null": (b"null", "not null"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
    "NaN": (b'{"x": NaN}', "NaN is not a JSON number"),
    "beyond the doubles without an exponent": (b'{"x": ' + b"9" * 400 + b".0}", "too large for a double"),
    "a lone surrogate in a key": (rb'{"\ud800": 1}', "lone surrogate"),
    "overlong UTF-8": (b'{"x": "\xc0\xaf"}', "not valid JSON"),
    "a surrogate in UTF-8": (b'{"x": "\xed\xa0\x80"}', "not valid JSON"),
    "a key given twice": (b'{"a": 1, "a": 1}', "the key 'a' is given twice"),
    "a key given twice, with space before the colons": (b'{"a" : 1, "a": 2}', "the key 'a' is given twice"),
    "a key given twice, once escaped": (rb'{"a": 1, "\u0061": 2}', "given twice"),
    "a key given twice inside": (b'{"x": [{"y": {"a": 1, "a": 2}}]}', "given twice"),
    "a key given twice beside colons in texts": (b'{"a": "x: y", "a": "\\": z"}', "given twice"),
    "a level too deep": (b'{"x": ' + b"[" * 20 + b"]" * 20 + b"}", "nested deeper than 20 levels"),
    "a hundred thousand levels": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    "an integer of ten thousand digits": (b'{"x": ' + b"9" * 10_000 + b"}", "limit"),
}  # fmt: skip


def test_an_accepted_row_is_the_value_that_it_writes(subtests: pytest.Subtests) -> None:
    for line, value in ACCEPTED.values():
        with subtests.test(line=line, value=value):
            found = parse_row(line, NESTING)
            assert isinstance(found, dict)
            if value is not None:
                assert found == value
                assert repr(found) == repr(value)  # 1 isn't 1.0, and True isn't 1


def test_a_refused_row_says_why(subtests: pytest.Subtests) -> None:
    for line, reason in REFUSED.values():
        with subtests.test(line=line, reason=reason):
            found = parse_row(line, NESTING)
            assert isinstance(found, DataError)
            assert reason in str(found)


def strictly(line: bytes) -> dict[str, object] | str:
    try:
        row = as_row(strict_json(line), NESTING)
    except InputError as error:
        return str(error)
    return str(row) if isinstance(row, DataError) else row


TEXTS = st.text(alphabet=st.sampled_from('ab:" \\,{}[]\u00e9\U0001f600\t'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    value=st.dictionaries(TEXTS, VALUES, max_size=4),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : "), (",", "\t:\r")]),
    ascii_only=st.booleans(),
)
def test_whatever_json_writes_is_read_back(
    value: dict[str, object], separators: tuple[str, str], ascii_only: bool
) -> None:
    line = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()
    assert parse_row(line, NESTING) == value


PIECES = st.sampled_from(
    ['{', '}', '[', ']', ':', ',', '"a"', '"b:"', '"\\u0061"', '"\\":"', ' ', '1', '1e400', '2.5', '1e19',
     '9223372036854775808', '123456789012345678901', 'null', 'true', '\t', '{"a":1}', '"a":1', '"a" :2']
)  # fmt: skip


@given(st.lists(PIECES, max_size=9))
def test_the_fast_parser_never_disagrees_with_the_strict_one(pieces: list[str]) -> None:
    for line in ("".join(pieces).encode(), ('{"a":' + "".join(pieces) + "}").encode()):
        found = parse_row(line, NESTING)
        expected = strictly(line)
        assert (str(found) if isinstance(found, DataError) else found) == expected
        assert repr(found) == repr(expected) or isinstance(found, DataError)

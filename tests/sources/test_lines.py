"""What a JSON row may be: own cases by the sections of RFC 8259, accepted with their value or refused with a reason.

The fast parser and the strict one must never disagree: a row is what the strict parser says it is.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import DataError, InputError
from calibudget.sources.lines import as_row, parse_row
from calibudget.store.canonical import strict_json

NESTING = 20

ACCEPTED: dict[str, tuple[bytes, object]] = {
    "no members": (b"{}", {}),
    "white space around and between": (b' \t\r\n{ "a" \t:\r 1 , "b" : 2 }\n ', {"a": 1, "b": 2}),
    "an empty key": (b'{"": 1}', {"": 1}),
    "keys that differ by case": (b'{"a": 1, "A": 2}', {"a": 1, "A": 2}),
    "keys that normalise to one": ('{"\u00e9": 1, "e\u0301": 2}'.encode(), {"\u00e9": 1, "e\u0301": 2}),
    "a key with a colon": (b'{"a:": {"b\\":": ":"}}', {"a:": {'b":': ":"}}),
    "one key at three places": (b'{"a": {"a": 1}, "b": [{"a": 2}]}', {"a": {"a": 1}, "b": [{"a": 2}]}),
    "the literals": (b'{"x": [true, false, null]}', {"x": [True, False, None]}),
    "integers": (b'{"x": [0, -0, 7, -12]}', {"x": [0, 0, 7, -12]}),
    "an integer beyond 64 bits": (b'{"x": 18446744073709551616}', {"x": 2**64}),
    "a negative integer beyond 64 bits": (b'{"x": [-9223372036854775809]}', {"x": [-(2**63) - 1]}),
    "the largest of 64 bits": (b'{"x": 18446744073709551615}', {"x": 2**64 - 1}),
    "fractions and exponents": (b'{"x": [0.5, -1.25e-3, 1E2, 1e+2]}', {"x": [0.5, -0.00125, 100.0, 100.0]}),
    "the largest double": (b'{"x": 1.7976931348623157e308}', {"x": 1.7976931348623157e308}),
    "the smallest double": (b'{"x": 5e-324}', {"x": 5e-324}),
    "an exponent that underflows": (b'{"x": 1e-400}', {"x": 0.0}),
    "digits that no double holds": (b'{"x": 0.1000000000000000055511151231257827}', {"x": 0.1}),
    "every short escape": (rb'{"x": "\"\\\/\b\f\n\r\t"}', {"x": '"\\/\b\f\n\r\t'}),
    "escapes of code units": (rb'{"x": "\u0041\u00e9\u4e2d\uD83D\uDE00"}', {"x": "A\u00e9\u4e2d\U0001f600"}),
    "an escaped NUL": (rb'{"x": "\u0000"}', {"x": "\0"}),
    "an escaped backslash before a u": (rb'{"x": "\\ud800"}', {"x": "\\ud800"}),
    "raw characters": ('{"x": "\u00e9\U0001f600\u2028\x7f"}'.encode(), {"x": "\u00e9\U0001f600\u2028\x7f"}),
    "a noncharacter": ('{"x": "\uffff"}'.encode(), {"x": "\uffff"}),
    "a key that looks like a number": (b'{"1": {"-0.5e3": []}}', {"1": {"-0.5e3": []}}),
    "an escaped key": (rb'{"\u0061\n": 1}', {"a\n": 1}),
    "a long key": (b'{"' + b"k" * 5000 + b'": 1}', {"k" * 5000: 1}),
    "empty containers in each other": (b'{"x": [[], {}, [{}], {"y": []}]}', {"x": [[], {}, [{}], {"y": []}]}),
    "white space inside empty containers": (b'{"x": [ ], "y": { }}', {"x": [], "y": {}}),
    "a negative zero with a fraction": (b'{"x": -0.0}', {"x": -0.0}),
    "an exponent with zeros": (b'{"x": [1e00, 1e-007]}', {"x": [1.0, 1e-7]}),
    "an integer of four thousand digits": (b'{"x": ' + b"9" * 4000 + b"}", {"x": 10**4000 - 1}),
    "a subnormal": (b'{"x": 2.2250738585072011e-308}', {"x": 2.2250738585072011e-308}),
    "halfway between doubles": (b'{"x": 9007199254740993.0}', {"x": 9007199254740992.0}),
    "text that looks like JSON": (rb'{"x": "{\"a\": 1, \"a\": 2}"}', {"x": '{"a": 1, "a": 2}'}),
    "a delete character and C1 controls": ('{"x": "\u007f\u0080\u009f"}'.encode(), {"x": "\u007f\u0080\u009f"}),
    "characters of four bytes": ('{"\U0001f600": "\U0010ffff"}'.encode(), {"\U0001f600": "\U0010ffff"}),
    "a byte order mark inside": ('{"x": "\ufeff"}'.encode(), {"x": "\ufeff"}),
    "as deep as it may be": (b'{"x": ' + b"[" * 19 + b"]" * 19 + b"}", None),
}  # fmt: skip

REFUSED: dict[str, tuple[bytes, str]] = {
    "a comma alone": (b'{"x": [,]}', "not valid JSON"),
    "a comma first": (b'{"x": [,1]}', "not valid JSON"),
    "two commas": (b'{"x": [1,,2]}', "not valid JSON"),
    "two colons": (b'{"x":: 1}', "not valid JSON"),
    "a semicolon for a comma": (b'{"a": 1; "b": 2}', "not valid JSON"),
    "a colon in an array": (b'{"x": ["a": 1]}', "not valid JSON"),
    "two values without a comma": (b'{"x": [1 2]}', "not valid JSON"),
    "a value in parentheses": (b'{"x": (1)}', "not valid JSON"),
    "a comment inside": (b'{"x": /* y */ 1}', "not valid JSON"),
    "a hash comment": (b'{"x": 1} # y', "Extra data"),
    "two objects without a space": (b'{"a": 1}{"b": 2}', "Extra data"),
    "a closing brace too many": (b'{"a": 1}}', "Extra data"),
    "a bare word": (b'{"x": truth}', "not valid JSON"),
    "a literal cut short": (b'{"x": nul}', "not valid JSON"),
    "a lonely minus": (b'{"x": -}', "not valid JSON"),
    "a minus and a space": (b'{"x": - 1}', "not valid JSON"),
    "two minuses": (b'{"x": --1}', "not valid JSON"),
    "a negative leading zero": (b'{"x": -012}', "not valid JSON"),
    "a point between nothing": (b'{"x": -.5}', "not valid JSON"),
    "a point before an exponent": (b'{"x": 2.e3}', "not valid JSON"),
    "two exponents": (b'{"x": 1eE2}', "not valid JSON"),
    "an exponent's sign alone": (b'{"x": 1e+}', "not valid JSON"),
    "a fractional exponent": (b'{"x": 1e2.5}', "not valid JSON"),
    "thousands parted": (b'{"x": 1 000}', "not valid JSON"),
    "underscores in a number": (b'{"x": 1_000}', "not valid JSON"),
    "digits of another script": ('{"x": \uff11}'.encode(), "not valid JSON"),
    "a number with a unit": (b'{"x": 1f}', "not valid JSON"),
    "inf": (b'{"x": inf}', "not valid JSON"),
    "minus NaN": (b'{"x": -NaN}', "not valid JSON"),
    "a backtick string": (b'{"x": `a`}', "not valid JSON"),
    "an escape at the end": (b'{"x": "a\\"}', "not valid JSON"),
    "an escape in capitals": (rb'{"x": "\U0041"}', "not valid JSON"),
    "an escaped quote for a string": (rb'{"x": \"a\"}', "not valid JSON"),
    "hexadecimal escapes": (rb'{"x": "\x41"}', "not valid JSON"),
    "an escape outside a string": (rb'{\u0022x": 1}', "not valid JSON"),
    "a raw tab in a string": (b'{"x": "a\tb"}', "not valid JSON"),
    "a raw return in a string": (b'{"x": "a\rb"}', "not valid JSON"),
    "a high surrogate before a letter": (rb'{"x": "\ud83da"}', "lone surrogate"),
    "two high surrogates": (rb'{"x": "\ud83d\ud83d\ude00"}', "lone surrogate"),
    "a lone continuation byte": (b'{"x": "\x80"}', "not valid JSON"),
    "Latin-1": ('{"x": "\u00e9"}'.encode("latin-1"), "not valid JSON"),
    "an overlong slash of three bytes": (b'{"x": "\xe0\x80\xaf"}', "not valid JSON"),
    "a byte that UTF-8 never has": (b'{"x": "\xfe"}', "not valid JSON"),
    "invalid UTF-8 after the object": (b'{"x": 1}\xe5', "not valid JSON"),
    "NUL after the object": (b'{"x": 1}\x00', "Extra data"),
    "a vertical tab around": (b'\x0b{"x": 1}', "not valid JSON"),
    "a line separator around": ('{"x": 1}\u2028'.encode(), "Extra data"),
    "a word joiner around": ('\u2060{"x": 1}'.encode(), "not valid JSON"),
    "UTF-32": ('{"a": 1}'.encode("utf-32"), "not valid JSON"),
    "an object of a key alone": (b'{"a"}', "not valid JSON"),
    "an object as a key": (b'{{"a": 1}: 2}', "not valid JSON"),
    "null as a key": (b'{null: 1}', "not valid JSON"),
    "nothing": (b"", "not valid JSON"),
    "white space alone": (b" \n", "not valid JSON"),
    "an array": (b"[1]", "a row must be an object, not list"),
    "a string": (b'"x"', "not str"),
    "a number": (b"1", "not int"),
    "null": (b"null", "not null"),
    "two values": (b"{} {}", "Extra data"),
    "a comma after the last member": (b'{"a": 1,}', "not valid JSON"),
    "a comma after the last item": (b'{"a": [1,]}', "not valid JSON"),
    "a missing comma": (b'{"a": 1 "b": 2}', "not valid JSON"),
    "a missing colon": (b'{"a" 1}', "not valid JSON"),
    "a missing value": (b'{"a":}', "not valid JSON"),
    "a bare key": (b"{a: 1}", "not valid JSON"),
    "a number as a key": (b"{1: 1}", "not valid JSON"),
    "single quotes": (b"{'a': 1}", "not valid JSON"),
    "a comment": (b'{"a": 1} // x', "Extra data"),
    "an unclosed object": (b'{"a": 1', "not valid JSON"),
    "an unclosed string": (b'{"a": "x}', "not valid JSON"),
    "a wrong bracket": (b'{"a": [1}}', "not valid JSON"),
    "a form feed between": (b'{"a":\x0c1}', "not valid JSON"),
    "a no-break space between": ('{"a":\u00a01}'.encode(), "not valid JSON"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
    "a plus sign": (b'{"x": +1}', "not valid JSON"),
    "a leading zero": (b'{"x": 01}', "not valid JSON"),
    "a point without digits": (b'{"x": 1.}', "not valid JSON"),
    "digits without a first": (b'{"x": .5}', "not valid JSON"),
    "an empty exponent": (b'{"x": 1e}', "not valid JSON"),
    "hexadecimal": (b'{"x": 0x1}', "not valid JSON"),
    "NaN": (b'{"x": NaN}', "NaN is not a JSON number"),
    "Infinity": (b'{"x": -Infinity}', "not a JSON number"),
    "beyond the doubles": (b'{"x": 1e309}', "too large for a double"),
    "beyond the doubles without an exponent": (b'{"x": ' + b"9" * 400 + b".0}", "too large for a double"),
    "a literal in capitals": (b'{"x": True}', "not valid JSON"),
    "a raw control character": (b'{"x": "a\x01"}', "not valid JSON"),
    "a raw line end in a string": (b'{"x": "a\nb"}', "not valid JSON"),
    "a raw NUL": (b'{"x": "\x00"}', "not valid JSON"),
    "an unknown escape": (rb'{"x": "\a"}', "not valid JSON"),
    "a short unicode escape": (rb'{"x": "\u12"}', "not valid JSON"),
    "a lone high surrogate": (rb'{"x": "\ud83d"}', "lone surrogate"),
    "a lone low surrogate": (rb'{"x": "\ude00"}', "lone surrogate"),
    "surrogates in the wrong order": (rb'{"x": "\ude00\ud83d"}', "lone surrogate"),
    "a lone surrogate in a key": (rb'{"\ud800": 1}', "lone surrogate"),
    "invalid UTF-8": (b'{"x": "\xff"}', "not valid JSON"),
    "overlong UTF-8": (b'{"x": "\xc0\xaf"}', "not valid JSON"),
    "a surrogate in UTF-8": (b'{"x": "\xed\xa0\x80"}', "not valid JSON"),
    "beyond Unicode": (b'{"x": "\xf4\x90\x80\x80"}', "not valid JSON"),
    "UTF-8 cut short": (b'{"x": "\xe4\xb8"}', "not valid JSON"),
    "a key given twice": (b'{"a": 1, "a": 1}', "the key 'a' is given twice"),
    "a key given twice, with space before the colons": (b'{"a" : 1, "a": 2}', "the key 'a' is given twice"),
    "a key given twice, once escaped": (rb'{"a": 1, "\u0061": 2}', "given twice"),
    "a key given twice inside": (b'{"x": [{"y": {"a": 1, "a": 2}}]}', "given twice"),
    "a key given twice beside colons in texts": (b'{"a": "x: y", "a": "\\": z"}', "given twice"),
    "a level too deep": (b'{"x": ' + b"[" * 20 + b"]" * 20 + b"}", "nested deeper than 20 levels"),
    "a thousand levels": (b'{"x": ' + b"[" * 1000 + b"]" * 1000 + b"}", "nested"),
    "a hundred thousand levels": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    "levels of objects": (b'{"x":' * 1000 + b"1" + b"}" * 1000, "nested"),
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

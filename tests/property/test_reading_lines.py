"""Lines and keys that are made in blocks are those made one at a time."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.keys import digest_keys, order_keys
from calibudget.sources import lines

PIECES = st.sampled_from([b"", b"\n", b"\r", b"a", b"bcd", b" ", b"\xff", b"x" * 9, b"\r\n"])


@given(data=st.lists(PIECES, max_size=30).map(b"".join), block=st.integers(1, 12), longest=st.integers(1, 12))
def test_lines_are_those_of_the_whole_file(data: bytes, block: int, longest: int) -> None:
    expected, at = [], 0
    for line in data.split(b"\n"):
        expected.append((at, line))
        at += len(line) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", block)
        found = dict(lines._lines(io.BytesIO(data), longest))
    for at, line in expected:
        if len(line) > longest:
            assert len(found[at]) > longest
            assert line.startswith(found[at])
        elif line:
            assert found[at] == line
    assert all(at in dict(expected) for at, line in found.items() if line)


@given(
    names=st.lists(st.binary(max_size=5), max_size=9),
    seed=st.integers(0, 2**53 - 1),
    label=st.text('ab"\\é', max_size=5),
)
def test_keys_of_many_digests_are_those_of_each(names: list[bytes], seed: int, label: str) -> None:
    digests = [hashlib.sha256(name).digest() for name in names]
    one = order_keys("selection", seed, label)
    assert digest_keys("selection", seed, label)(b"".join(digests)) == b"".join(one(own.hex()) for own in digests)

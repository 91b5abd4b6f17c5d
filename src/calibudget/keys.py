"""Every rule that turns seeds and identities into keys and random streams; nowhere else is one made.

A key is a hash of a canonical JSON array, so it depends on nothing but the values in it: not on the order of
files, the number of workers, the platform or the version of a generator.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from calibudget.errors import InputError, InputTypeError
from calibudget.messages import shown

#: Positions whose words one BLAKE2b-512 digest gives.
WORDS_PER_DIGEST: Final = 16

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def canonical_pair(first: str, second: str) -> bytes:
    """`canonical_array` of two strings, for the identity of every record that is read.

    Raises:
        InputError: a string holds a lone surrogate.
    """
    try:
        return orjson.dumps((first, second))
    except TypeError as error:
        raise InputError(f"a string holds a lone surrogate and has no UTF-8 form: {first[:80]!r}") from error


def canonical_pairs(firsts: Sequence[str], seconds: Sequence[str]) -> list[bytes]:
    """`canonical_pair` of many: a call for each takes seven times longer."""
    pairs = list(zip(firsts, seconds, strict=True))
    found = orjson.dumps(pairs)[2:-2].split(b"],[")
    if len(found) != len(pairs):  # a text holds what parts them
        return [canonical_pair(*pair) for pair in pairs]
    return [b"[%b]" % one for one in found]


def canonical_array(values: Iterable[str | int]) -> bytes:
    """RFC 8785 bytes of a flat array of strings and integers.

    The general canonicaliser lives in `calibudget.store.canonical`; for flat arrays of strings and safe
    integers the standard library's compact form is the same bytes at a tenth of the time, and this is the hot
    path of every draw.

    Raises:
        InputTypeError: a value is neither a string nor an integer (a bool is neither).
        InputError: an integer beyond 2**53 - 1, or a string with a lone surrogate.
    """
    items = list(values)
    for value in items:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputTypeError(f"a key is made of strings and integers, not {type(value).__name__}: {shown(value)}")
        if isinstance(value, int) and value.bit_length() > 53:
            raise InputError(f"the integer {shown(value)} is beyond 2**53 - 1 and has no exact JSON form")
    text = _ENCODER.encode(items)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"a string holds a lone surrogate and has no UTF-8 form: {text[:80]!r}") from error


def order_key(role: str, seed: int, source: str, record_id: str) -> bytes:
    """The 32 bytes that place one record in its source's order under a role ("calibration", "selection", ...).

    BLAKE2b-256 of the canonical array [role, seed, source, record_id]; records are drawn in ascending order of
    these bytes, which is a uniform draw without replacement (paper 2.3: uniform within a source).
    """
    return hashlib.blake2b(canonical_array([role, seed, source, record_id]), digest_size=32).digest()


def order_keys(role: str, seed: int, source: str) -> Callable[[str], bytes]:
    """`order_key` with the first three arguments fixed, for going through a whole pool."""
    prefix = hashlib.blake2b(canonical_array([role, seed, source])[:-1], digest_size=32)

    def key(record_id: str) -> bytes:
        state = prefix.copy()
        if record_id.isascii() and record_id.isalnum():  # a digest, say: nothing in it that JSON escapes
            state.update(b',"%b"]' % record_id.encode())
        else:
            state.update(b"," + canonical_array([record_id])[1:])
        return state.digest()

    return key


def digest_keys(role: str, seed: int, source: str) -> Callable[[bytes], bytes]:
    """`order_keys` for records that are named by digests, many at a time.

    The function takes digests of 32 bytes, one after the other, and gives the keys of their hex digits likewise.
    """
    prefix = hashlib.blake2b(canonical_array([role, seed, source])[:-1] + b',"', digest_size=32)

    def keys(digests: bytes) -> bytes:
        names = digests.hex().encode("ascii")
        found = []
        for (name,) in struct.iter_unpack("64s", names):
            state = prefix.copy()
            state.update(name + b'"]')
            found.append(state.digest())
        return b"".join(found)

    return keys


def named_stream(role: str, seed: int, label: str) -> np.random.Philox:
    """The random stream of one source under a role ("bootstrap"), or of one resampling of a study ("study").

    It is numpy's Philox with counter 0 and a key of its own: the first 16 bytes, little-endian, of BLAKE2b-256 of
    [role, seed, label]. So a source's stream depends on no other source.
    """
    digest = hashlib.blake2b(canonical_array([role, seed, label]), digest_size=32).digest()
    return np.random.Philox(counter=0, key=int.from_bytes(digest[:16], "little"))


def sketch_words(seed: int, start: int, stop: int) -> NDArray[np.uint32]:
    """The 32-bit words from which a CountSketch takes the bucket and the sign of positions start to stop - 1.

    Position i has word i % 16, little-endian, of BLAKE2b-512 of the canonical array ["countsketch", seed, i // 16].

    Returns:
        Shape (stop - start,), uint32.
    """
    prefix = canonical_array(["countsketch", seed])[:-1]
    first, last = start // WORDS_PER_DIGEST, -(-stop // WORDS_PER_DIGEST)
    digests = b"".join([hashlib.blake2b(b"%b,%d]" % (prefix, group)).digest() for group in range(first, last)])
    words = np.frombuffer(digests, dtype="<u4").astype(np.uint32, copy=False)
    return words[start - first * WORDS_PER_DIGEST : stop - first * WORDS_PER_DIGEST]


def torch_seed(role: str, seed: int, name: str) -> int:
    """The 63-bit seed of one tensor's or one step's own torch generator.

    BLAKE2b-256 of the canonical array [role, seed, name], its first 8 bytes, little-endian, without the top bit.
    """
    digest = hashlib.blake2b(canonical_array([role, seed, name]), digest_size=32).digest()
    return int.from_bytes(digest[:8], "little") & (2**63 - 1)


def bootstrap_streams(bootstrap_seed: int) -> Callable[[str], np.random.Philox]:
    """`named_stream` of the bootstrap with the seed fixed, for going through many sources.

    All sources get the same generator object, set anew: the stream of one ends where that of the next begins.
    """
    stream = np.random.Philox(counter=0, key=0)
    state = stream.state

    def keyed(label: str) -> np.random.Philox:
        digest = hashlib.blake2b(canonical_array(["bootstrap", bootstrap_seed, label]), digest_size=32).digest()
        state["state"]["key"] = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
        stream.state = state
        return stream

    return keyed

"""What sets share, against plain sets of Python."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import numpy as np
import pytest

from calibudget.sources import identity_table
from calibudget.sources.hygiene import checks
from calibudget.sources.hygiene.checks import groups, shared_counts, shared_digests


def column(numbers: list[int]) -> np.ndarray:
    digests = [hashlib.sha256(str(number).encode()).digest() for number in numbers]
    return np.frombuffer(b"".join(digests), dtype="V32")


@pytest.mark.parametrize(("buffer", "cells"), [(10, 2**23), (150, 100), (100_000, 7), (100_000, 1), (100_000, 2**23)])
def test_every_digest_is_counted_once_for_each_set(monkeypatch: pytest.MonkeyPatch, buffer: int, cells: int) -> None:
    monkeypatch.setattr(identity_table, "BUFFER", buffer)
    monkeypatch.setattr(checks, "_CELLS", cells)
    draw = random.Random(0)  # noqa: S311
    sets = [[draw.randrange(300) for _ in range(size)] for size in (200, 0, 90, 400)]

    def found() -> object:
        return groups([column(numbers[:50]), column(numbers[50:])] for numbers in sets)

    known = {hashlib.sha256(str(number).encode()).digest(): number for number in range(300)}
    counters = [Counter(numbers) for numbers in sets]
    seen: list[bytes] = []
    for group in found():  # type: ignore[attr-defined]
        for digest, counts in zip(group.digests.tolist(), group.counts.tolist(), strict=True):
            assert counts == [counter[known[digest]] for counter in counters]
            seen.append(digest)
    assert seen == sorted(seen)
    assert {known[digest] for digest in seen} == set().union(*sets)

    shared, repeated = shared_counts(found(), 4)  # type: ignore[arg-type]
    for one in range(4):
        assert repeated[one] == len(sets[one]) - len(counters[one])
        for other in range(4):
            assert shared[one, other] == sum(number in counters[other] for number in sets[one])

    by_pair = shared_digests(found(), {2: [0, 1], 3: [2]})  # type: ignore[arg-type]
    assert {known[one] for one in by_pair[2][0]} == set(sets[2]) & set(sets[0])
    assert {known[one] for one in by_pair[3][2]} == set(sets[3]) & set(sets[2])
    assert 1 not in by_pair[2]

"""Whatever stands in for ids, scores, vectors, bytes or paths: an answer, or an error of ours that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.errors import CalibudgetError
from calibudget.selection.draw import canonical_selected_indices_sha256
from calibudget.selection.sketch import CountSketch
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.sums import file_digest

ODD: list[Any] = [
    None, True, False, 0, -1, 3, 1.0, -0.0, 0.5, math.nan, math.inf, 1e308, 10**30, 10**400, 10**5000, 2**53,
    np.int64(3), np.float64("nan"), np.bool_(True), np.array(3), np.array([[1, 2]]), np.array(["x"]), np.array([1j]),
    "", "x", "abc", "\ud800", "a\0b", b"", b"ab", bytearray(b"ab"), memoryview(b"ab"), 1j, [], [1], ["a", 1], (), {},
    {"a": 1}, {1: 2}, {"a": None}, {"a": "abc"}, {"a": 5}, {"a": [None]}, {"a": [[]]}, set(), {"b", "a"}, object(),
    len, int,
]  # fmt: skip

CALLS: dict[str, tuple[Callable[..., object], list[Any]]] = {
    "canonical_selected_indices_sha256": (canonical_selected_indices_sha256, [*ODD, *([one] for one in ODD)]),
    "CountSketch call": (CountSketch(dimension=4, seed=1), [*ODD, *([one, 1.0] for one in ODD)]),
    "loads_object": (lambda one: loads_object(one, "file"), ODD),
    "canonical_json": (canonical_json, [*ODD, *([one] for one in ODD)]),
    "file_digest": (file_digest, [*ODD, Path("a\0b"), Path("\ud800")]),
}  # fmt: skip


def test_odd_values_are_answered_or_refused(subtests: pytest.Subtests) -> None:
    for name in CALLS:
        with subtests.test(name=name):
            function, odd = CALLS[name]
            for value in odd:
                try:
                    function(value)
                except CalibudgetError:
                    continue

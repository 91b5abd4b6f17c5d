from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from calibudget.errors import InputError, InputTypeError
from calibudget.selection.draw import canonical_selected_indices_sha256


def digest(data: Any) -> Any:
    return hashlib.sha256(data).hexdigest()


def test_the_digest_is_that_of_the_canonical_array(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ([], b"[]"),
        ([3, 1, 2], b"[3,1,2]"),
        (np.array([3, 1, 2]), b"[3,1,2]"),
        ([np.int64(3), 1, np.uint8(2)], b"[3,1,2]"),
        (range(3), b"[0,1,2]"),
        ([-1, 2**53 - 1], b"[-1,9007199254740991]"),
        (["b", "a", "é\n"], '["b","a","é\\n"]'.encode()),
        (["1"], b'["1"]'),
    ]
    for indices, canonical in cases:
        with subtests.test(canonical=canonical):
            assert canonical_selected_indices_sha256(indices) == digest(canonical)
            assert canonical_selected_indices_sha256(iter(indices)) == digest(canonical)


def test_order_counts() -> None:
    # Paper, appendix "Selection Identity": the same set in another order is another selection.
    assert canonical_selected_indices_sha256([1, 2]) != canonical_selected_indices_sha256([2, 1])
    assert canonical_selected_indices_sha256([1, 2]) != canonical_selected_indices_sha256(["1", "2"])


def test_what_is_neither_all_integers_nor_all_strings_is_a_type_error(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        [True],
        [0, False],
        [1, True],
        [np.bool_(True)],
        [1.0],
        [np.float64(1)],
        [None],
        [b"a"],
        [1, "a"],
        ["a", 1],
        [[1]],
    ]
    for indices in cases:
        with subtests.test(indices=indices), pytest.raises(InputTypeError):
            canonical_selected_indices_sha256(indices)


def test_duplicates_and_what_json_cant_carry_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ([1, 2, 1], "1 is selected twice"),
        (["a", "a"], "'a' is selected twice"),
        ([2**53], "2\\*\\*53"),
        (["\ud800"], "lone"),
    ]
    for indices, said in cases:
        with subtests.test(said=said), pytest.raises(InputError, match=said):
            canonical_selected_indices_sha256(indices)

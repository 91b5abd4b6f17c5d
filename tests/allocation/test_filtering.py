"""Largest remainders at the water level by doubles, with exact decisions where those can't tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.exact import doubles
from calibudget.allocation.exact.doubles import exact_sum, filtered


def test_sums_of_integers_do_not_overflow() -> None:
    assert exact_sum(np.array([], dtype=np.int64)) == 0
    assert exact_sum(np.array([3, 4])) == 7
    assert exact_sum(np.full(5, 2**62)) == 5 * 2**62
    assert exact_sum(np.full(9, 2**63 - 1)) == 9 * (2**63 - 1)


def test_a_filter_that_cannot_decide_says_so() -> None:
    """Wide utilities on a plateau between floors and caps: integers take over, and the answer is theirs."""
    utilities = np.array([1.0, 1e308, 1.0])
    lower, upper = np.array([1, 0, 0]), np.array([2, 2, 2])
    assert filtered(utilities, lower, upper, 3) is None
    assert apportion_arrays(utilities, 3, lower=lower, upper=upper).quotas.tolist() == [1, 2, 0]


def quotas(utilities: Any, lower: Any, upper: Any, budget: Any, tie_key: Any = None) -> Any:
    return filtered(np.array(utilities), np.array(lower), np.array(upper), budget, tie_key).quotas.tolist()  # type: ignore[union-attr]


def test_labels_settle_ties_between_bounds() -> None:
    """Bounds bind for the first source and the last but one; the others tie."""
    bounds = [0, 0, 0, 3, 0], [2, 9, 9, 8, 9]
    assert quotas([9.0, 1.0, 1.0, 0.5, 1.0], *bounds, 9) == [2, 2, 1, 3, 1]
    assert quotas([9.0, 1.0, 1.0, 0.5, 1.0], *bounds, 9, "edcba".__getitem__) == [2, 1, 1, 3, 2]
    assert quotas([9.0, 1.0, 1.0, 0.5, 1.0], *bounds, 10, "ecdba".__getitem__) == [2, 2, 1, 3, 2]


def test_a_single_unit_between_bounds() -> None:
    assert quotas([10.0, 1.0, 2.0], [0, 0, 0], [3, 9, 9], 4) == [3, 0, 1]


def test_without_a_source_between_its_bounds_the_last_to_fill_sets_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doubles find which bounds bind, and the first exact decision agrees."""
    monkeypatch.setattr(doubles, "_CORRECTIONS", 1)
    assert quotas([10.0, 1.0, 1e-9], [0, 0, 100], [4, 3, 200], 107) == [4, 3, 100]
    # The share that would fill a source of so little utility is beyond the doubles.
    assert quotas([1e-320, 5e-324], [0, 3], [2, 9], 5) == [2, 3]

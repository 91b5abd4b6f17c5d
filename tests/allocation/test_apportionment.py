"""What `apportion` accepts and refuses; its quotas are judged in tests/golden and tests/property."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from calibudget.allocation.quotas import apportion


def test_all_kinds_of_numbers_give_one_answer() -> None:
    expected = apportion({"a": 1, "b": 2, "c": 3}, 10).quotas
    for one, two, three in [
        (1.0, 2.0, 3.0),
        (Fraction(1, 3), Fraction(2, 3), 1),
        (Decimal("0.1"), Decimal("0.2"), Decimal("0.3")),
        (np.float32(1), np.int64(2), 3),
        (1e30, 2e30, 3e30),
    ]:
        made = apportion({"a": one, "b": two, "c": three}, np.int64(10))  # type: ignore[arg-type, dict-item]
        assert made.quotas == expected
        assert made.budget == 10


def test_huge_integers_are_exact() -> None:
    budget = 10**30 + 1
    made = apportion({"a": 1, "b": 1}, budget)
    assert made.quotas == {"a": budget // 2 + 1, "b": budget // 2}
    assert apportion({"a": 10**40 + 1, "b": 10**40}, 10**41).quotas["a"] > 10**41 // 2


def test_utility_zero_stays_at_the_lower_bound_until_all_others_are_full() -> None:
    assert apportion({"a": 0, "b": 1}, 5, lower={"a": 1, "b": 0}).quotas == {"a": 1, "b": 4}
    bounds: dict[str, Any] = {"lower": {"a": 1, "b": 0, "c": 0}, "upper": {"a": 9, "b": 3, "c": 9}}
    assert apportion({"a": 0, "b": 1, "c": 0}, 4, **bounds).quotas == {"a": 1, "b": 3, "c": 0}
    made = apportion({"a": 0, "b": 1, "c": 0}, 8, **bounds)
    assert made.quotas == {"a": 3, "b": 3, "c": 2}
    assert made.shares == {"a": 2.5, "b": 3.0, "c": 2.5}


def test_many_sources_give_the_answer_of_few() -> None:
    """Beyond a few hundred sources of float utility the work is done in arrays."""
    names = [f"{k:04}" for k in range(1_000)]
    made = apportion({name: 0.1 * (k % 7) for k, name in enumerate(names)}, 4_001, upper=dict.fromkeys(names, 9))
    exact = apportion(
        {name: Fraction(0.1 * (k % 7)) for k, name in enumerate(names)}, 4_001, upper=dict.fromkeys(names, 9)
    )
    assert made == exact

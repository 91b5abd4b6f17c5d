"""The float filter against plain integers, on the inputs that break floating-point apportionment."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from calibudget.allocation.exact import doubles, integers
from calibudget.allocation.exact.budget_spread import spread_arrays
from calibudget.allocation.exact.integers import exact_shares
from calibudget.allocation.exact.numbers import integer_weights

GENERATOR = np.random.default_rng


def families(size: Any, seed: Any) -> Iterator[Any]:
    """Utilities by name; each a way in which remainders tie, nearly tie, or leave the range of doubles."""
    rng = GENERATOR(seed)
    count = np.arange(1, size + 1, dtype=np.float64)
    yield "equal", np.full(size, 0.1)
    yield "random", rng.random(size)
    yield "tenths", 0.1 * count
    yield "thirds", count / 3
    yield "integers", count
    yield "small integers", rng.integers(1, 5, size).astype(np.float64)
    yield "neighbours", rng.choice([1.0, math.nextafter(1, 2), math.nextafter(1, 0), 0.5], size)
    yield "neighbours and dust", np.where(count % 7 == 0, 2.0**-90, 1.0 + 2.0**-52 * rng.integers(0, 3, size))
    yield "wide", 10.0 ** rng.uniform(-300, 300, size)
    yield "powers", 2.0 ** -rng.integers(0, 1000, size).astype(np.float64)
    yield "subnormal", rng.integers(1, 1000, size) * 5e-324
    yield "extremes", rng.choice([5e-324, 2.3e-308, 1e-310, 1.0, 1e308, 1.7e308], size)
    yield "long", rng.integers(2**52, 2**53, size).astype(np.float64)
    yield "all zero", np.zeros(size)
    yield "half zero", np.where(rng.random(size) < 0.5, 0.0, rng.random(size))


def constraints(size: Any, seed: Any) -> Iterator[Any]:
    """Bounds and budgets: none, caps that bind, floors and caps, tied caps, little room, large numbers."""
    rng = GENERATOR(seed)
    zero = np.zeros(size, dtype=np.int64)
    yield zero, np.full(size, 10 * size), 10 * size
    yield zero, np.full(size, 3 * size + size // 2), 3 * size + size // 2
    caps = rng.integers(0, 40, size)
    yield zero, caps, int(caps.sum()) * 3 // 4
    floors = np.minimum(caps, rng.integers(0, 9, size))
    yield floors, caps, (int(caps.sum()) + int(floors.sum())) // 2
    yield zero, np.full(size, 7), 7 * size - size // 2
    large = rng.integers(0, 2**47 // size + 1, size)
    yield large // 2, large, int(large.sum()) * 7 // 8
    yield zero, np.full(size, 2**47), 2**47 - 1


def filter_agrees(utilities: Any, lower: Any, upper: Any, budget: Any) -> Any:
    """Whether the filter gives the integers' quotas and shares; None where it leaves the case to them."""
    upper = np.minimum(upper, budget)
    found = spread_arrays(utilities, lower, upper, budget)
    if found is None:
        return None
    weights = integer_weights(utilities.tolist(), [""] * len(utilities))
    exact = exact_shares(weights, lower.tolist(), upper.tolist(), budget)
    return found.quotas.tolist() == exact.quotas() and found.shares().tolist() == exact.nearest()


@pytest.mark.parametrize(
    ("size", "seeds"),
    [
        (1, 3),
        (2, 3),
        (3, 5),
        (8, 5),
        (50, 2),
        pytest.param(400, 3, marks=pytest.mark.slow),
        pytest.param(20_000, 1, marks=pytest.mark.full),
        pytest.param(200_000, 1, marks=pytest.mark.full),
    ],
)
def test_no_family_differs(size: int, seeds: int) -> None:
    wrong, left_over, tried = [], 0, 0
    for seed in range(seeds):
        for bounds in constraints(size, seed):
            if int(bounds[1].sum()) < bounds[2]:
                continue
            for name, utilities in families(size, seed):
                agreed = filter_agrees(utilities, *bounds)
                wrong += [(name, size, seed, bounds[2])] if agreed is False else []
                left_over += agreed is None
                tried += 1
    assert wrong == []
    # The filter may leave a case to the integers, but not many.
    assert left_over <= 0.05 * tried


@pytest.mark.parametrize(("size", "passes"), [(9, 250), (60, 430), (500, 870)])
def test_doubles_find_at_once_which_bounds_bind(monkeypatch: pytest.MonkeyPatch, size: int, passes: int) -> None:
    """What they get wrong, exact decisions put right, but it costs a pass over all sources, as each trial does."""
    census = Mock(side_effect=doubles._census)
    monkeypatch.setattr(doubles, "_census", census)
    monkeypatch.setattr(doubles, "_CORRECTIONS", 1)
    monkeypatch.setattr(integers, "_BLOCK", 32)
    missed, tried = [], 0
    for lower, upper, budget in constraints(size, 0):
        most = np.minimum(upper, budget)
        for name, utilities in families(size, 0):
            missed += [(name, budget)] if spread_arrays(utilities, lower, most, budget) is None else []
            tried += 1
    assert len(missed) <= 0.05 * tried, missed
    assert census.call_count <= passes


@pytest.mark.parametrize(("count", "seed"), [(300, 1), pytest.param(5_000, 2, marks=pytest.mark.full)])
def test_no_random_bounds_differ(count: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    wrong = []
    for number in range(count):
        size = rng.choice((1, 2, 3, 5, 9, 30))
        chosen = rng.choice([utilities for _, utilities in families(size, number)])
        most = rng.choice((1, 2, 5, 100, 10**6, 2**40))
        upper = np.array([rng.randint(0, most) for _ in range(size)])
        lower = np.array([rng.randint(0, high) if rng.random() < 0.4 else 0 for high in upper.tolist()])
        budget = rng.randint(int(lower.sum()), int(upper.sum()))
        if filter_agrees(chosen, lower, upper, budget) is False:
            wrong.append((chosen.tolist(), lower.tolist(), upper.tolist(), budget))
    assert wrong == []

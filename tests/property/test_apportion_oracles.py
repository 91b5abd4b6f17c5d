"""`apportion` against two oracles that share no code with it: rational brute force, and an integer program."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.quotas import apportion

LABELS = "abcdefgh"


def oracle_shares(utilities: Any, lower: Any, upper: Any, budget: Any) -> Any:
    """Try every way for sources to be at their lower bound, between, or at their upper bound, and keep the right."""
    size = len(utilities)
    for places in itertools.product("<=>", repeat=size):
        if any(not utilities[k] and places[k] != "<" for k in range(size)):
            continue
        free = [k for k in range(size) if places[k] == "="]
        settled = {k: lower[k] if places[k] == "<" else upper[k] for k in range(size) if places[k] != "="}
        left, total = budget - sum(settled.values()), sum(utilities[k] for k in free)
        if free:
            level = Fraction(left) / total
        elif left == 0:
            # Any level from the last that fills an upper bound will do, if lower bounds still hold there.
            level = max(
                (Fraction(upper[k]) / utilities[k] for k in range(size) if places[k] == ">"), default=Fraction(0)
            )
        else:
            continue
        raw = [level * u for u in utilities]
        if level >= 0 and all(
            (raw[k] <= lower[k])
            if places[k] == "<"
            else (raw[k] >= upper[k])
            if places[k] == ">"
            else lower[k] <= raw[k] <= upper[k]
            for k in range(size)
        ):
            return [min(max(raw[k], Fraction(lower[k])), Fraction(upper[k])) for k in range(size)]
    # Nobody with utility has room: the others share what is left evenly.
    idle = [k for k in range(size) if not utilities[k]]
    rest = budget - sum(upper[k] for k in range(size) if utilities[k])
    even = dict(
        zip(idle, oracle_shares([1] * len(idle), [lower[k] for k in idle], [upper[k] for k in idle], rest), strict=True)
    )
    return [even.get(k, Fraction(upper[k])) for k in range(size)]


def oracle_quotas(shares: Any) -> Any:
    quotas = [math.floor(t) for t in shares]
    order = sorted(range(len(shares)), key=lambda k: (quotas[k] - shares[k], k))
    for k in order[: int(sum(shares)) - sum(quotas)]:
        quotas[k] += 1
    return quotas


def agrees(utilities: Any, lower: Any, upper: Any, budget: Any) -> Any:
    """Whether `apportion` and its array form give the oracle's shares and quotas."""
    names = LABELS[: len(utilities)]
    made = apportion(
        dict(zip(names, utilities, strict=True)),
        budget,
        lower=dict(zip(names, lower, strict=True)),
        upper=dict(zip(names, upper, strict=True)),
    )
    arrays = apportion_arrays(
        np.array(utilities, dtype=object if any(isinstance(u, Fraction) for u in utilities) else None),
        budget,
        lower=np.array(lower, dtype=np.int64),
        upper=np.array(upper, dtype=np.int64),
    )
    shares = oracle_shares([Fraction(u) for u in utilities], lower, upper, budget)
    quotas = oracle_quotas(shares)
    return (
        list(made.quotas.values()) == quotas == arrays.quotas.tolist()
        and list(made.shares.values()) == [float(t) for t in shares] == arrays.shares().tolist()
    )


def boxes(utilities: Any, bounds: Any) -> Any:
    return [(u, low, high) for u in utilities for low in bounds for high in bounds if low <= high]


def exhaustive(size: Any, utilities: Any, bounds: Any) -> Iterator[Any]:
    for sources in itertools.combinations_with_replacement(boxes(utilities, bounds), size):
        u, low, high = zip(*sources, strict=True)
        for budget in range(sum(low), sum(high) + 1):
            yield u, low, high, budget


@pytest.mark.parametrize(
    ("size", "utilities", "bounds"),
    [
        (1, (0, 1, 3), (0, 1, 2, 5)),
        (2, (0, 1, 2, 5), (0, 1, 3)),
        pytest.param(3, (0, 1, 2), (0, 1, 3), marks=pytest.mark.slow),
        pytest.param(4, (0, 1, 2), (0, 2), marks=pytest.mark.full),
        pytest.param(3, (0, 1, 2, 5), (0, 1, 2, 4), marks=pytest.mark.full),
        pytest.param(4, (0, 1, 3), (0, 1, 3), marks=pytest.mark.full),
    ],
)
def test_every_small_problem(size: int, utilities: Any, bounds: Any) -> None:
    wrong = [case for case in exhaustive(size, utilities, bounds) if not agrees(*case)]
    assert wrong == []


def random_case(rng: Any) -> Any:
    size = rng.randint(1, 5)
    style = rng.randrange(6)
    utilities = [
        (
            rng.randint(0, 6),
            rng.random(),
            0.1 * rng.randint(1, 9),
            Fraction(rng.randint(0, 9), rng.randint(1, 9)),
            10.0 ** rng.uniform(-300, 300),
            rng.randint(1, 9) * 5e-324,
        )[style]
        for _ in range(size)
    ]
    most = rng.choice((1, 3, 10, 1000, 10**9))
    upper = [rng.randint(0, most) for _ in range(size)]
    lower = [rng.randint(0, high) if rng.random() < 0.5 else 0 for high in upper]
    return utilities, lower, upper, rng.randint(sum(lower), sum(upper))


@pytest.mark.parametrize(
    ("count", "seed"),
    [(400, 1), pytest.param(100_000, 3, marks=pytest.mark.full)],
)
def test_random_problems(count: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    wrong = [case for case in (random_case(rng) for _ in range(count)) if not agrees(*case)]
    assert wrong == []


def program_objective(shares: Any, lower: Any, upper: Any, budget: Any) -> Any:
    """The least sum of |quota - share| over integer quotas, found by scipy's mixed-integer solver in whole numbers."""
    size = len(shares)
    common = math.lcm(*(t.denominator for t in shares))
    targets = np.array([int(t * common) for t in shares])
    # Variables: quotas, then deviations d >= |common * quota - common * share|.
    quotas, deviations = common * np.eye(size), np.eye(size)
    spend = np.hstack([np.ones(size), np.zeros(size)])[np.newaxis]
    result = milp(
        np.hstack([np.zeros(size), np.ones(size)]),
        integrality=np.ones(2 * size),
        bounds=(np.hstack([lower, np.zeros(size)]), np.hstack([upper, np.full(size, common * budget)])),
        constraints=[
            LinearConstraint(np.hstack([quotas, -deviations]), ub=targets),
            LinearConstraint(np.hstack([-quotas, -deviations]), ub=-targets),
            LinearConstraint(spend, lb=budget, ub=budget),
        ],
    )
    assert result.success, result.message
    return Fraction(round(result.fun), common)


@pytest.mark.parametrize(("count", "seed"), [(60, 1), pytest.param(1_000, 2, marks=pytest.mark.full)])
def test_no_integer_program_comes_closer_to_the_shares(count: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    for _ in range(count):
        size = rng.randint(2, 6)
        utilities = [rng.randint(0, 9) for _ in range(size)]
        upper = [rng.randint(0, 12) for _ in range(size)]
        lower = [rng.randint(0, high) if rng.random() < 0.3 else 0 for high in upper]
        budget = rng.randint(sum(lower), sum(upper))
        shares = oracle_shares(utilities, lower, upper, budget)
        names = LABELS[:size]
        made = apportion(
            dict(zip(names, utilities, strict=True)),
            budget,
            lower=dict(zip(names, lower, strict=True)),
            upper=dict(zip(names, upper, strict=True)),
        )
        distance = sum(abs(q - t) for q, t in zip(made.quotas.values(), shares, strict=True))
        assert distance == program_objective(shares, lower, upper, budget)

"""Exact integers behind doubles: their sums, and the signs and order of small differences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from calibudget.allocation.exact.integers import Doubles, blocks, can_wrap, ordered_differences

MIXED = np.array([0.1, 1.0, 3e300, 5e-324, 2.0**-1022, 7.25])


def test_doubles_come_apart_exactly() -> None:
    doubles = Doubles.of(MIXED)
    unit = Fraction(2) ** doubles.base
    assert [m * unit for m in doubles.integers()] == [Fraction(v) for v in MIXED.tolist()]
    assert [int(w) for w in doubles.wrapped()] == [m % 2**64 for m in doubles.integers()]
    assert doubles.total() * unit == sum(map(Fraction, MIXED.tolist()))
    assert doubles.only(slice(0, 2)).total() * unit == Fraction(0.1) + 1
    assert doubles.only(np.array([3])).integers() == [1]


def test_a_common_unit_is_the_lowest_bit_of_the_smallest() -> None:
    assert Doubles.of(np.array([1.0, 8.0])).base == -52
    assert Doubles.of(np.array([5e-324, 1.0])).base == -1074
    assert Doubles.of(np.array([2.0**-1022])).base == -1074
    assert Doubles.of(np.array([2.0**-1021])).base == -1073


def test_sums_of_many_doubles_are_exact() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.random(30_000), 10.0 ** rng.uniform(-300, 300, 3_000), rng.integers(1, 99, 20_000) * 5e-324):
        doubles = Doubles.of(values)  # type: ignore[arg-type]
        assert doubles.total() * Fraction(2) ** doubles.base == sum(map(Fraction, values.tolist()))


def test_ranked_differences_keep_their_signs_and_order() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.integers(1, 40, 60) / 8, [0.1, 0.2, 0.3, 0.7]])
    doubles = Doubles.of(values)
    budget, total = 1_000, doubles.total()
    integers = doubles.integers()
    quotas = np.array([budget * m // total for m in integers])
    for offset in (0, total // 3, budget * integers[0] - int(quotas[0]) * total):
        exact = [budget * m - int(q) * total - offset for m, q in zip(integers, quotas, strict=True)]
        keys = ordered_differences(doubles, budget, total, quotas, width=1.0, offset=offset)
        assert [int(np.sign(key)) for key in keys] == [(e > 0) - (e < 0) for e in exact]
        assert np.argsort(keys, kind="stable").tolist() == sorted(range(len(exact)), key=exact.__getitem__)
        assert len(set(keys.tolist())) == len(set(exact))
        assert max(abs(key) for key in keys.tolist()) <= len(exact)


def test_wrapped_differences_of_near_ties_in_many_blocks() -> None:
    steps = np.random.default_rng(3).integers(-50, 50, 20_000)
    doubles = Doubles.of(1.0 + steps * 2.0**-52)  # type: ignore[arg-type]
    budget, total = 30_000, doubles.total()
    quotas = np.ones(20_000, dtype=np.int64)
    offset = (budget << -doubles.base) - total
    exact = [budget * m - total - offset for m in doubles.integers()]
    made = ordered_differences(doubles, budget, total, quotas, width=2.0**-30, offset=offset)
    assert made.tolist() == exact


def test_ranks_tell_zero_from_its_neighbours() -> None:
    doubles = Doubles.of(np.array([1.0, 2.0, 3.0, 3.0]))
    total = doubles.total()
    # 9 units at 1 : 2 : 3 : 3 are 1, 2, 3 and 3: differences from (1, 1, 4, 3) are 0, 1, -1, 0 units.
    quotas = np.array([1, 1, 4, 4])
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60).tolist() == [0, 1, -1, -1]
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60, offset=-1).tolist() == [1, 2, -1, -1]
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60, offset=1).tolist() == [-1, 1, -2, -2]


def test_differences_wrap_only_where_they_are_known_to_fit(subtests: pytest.Subtests) -> None:
    """total * width stays below 2**62."""
    for total, width, safe in [
        (2**61 - 1, 0.5, True),
        (2**61 - 1, 1.0, True),
        (2**61, 1.0, False),
        (1, 2.0**60, True),
        (1, 2.0**61, False),
        (2**90, 2.0**-30, True),
        (2**90, 2.0**-29, False),
    ]:
        with subtests.test(width=width):
            assert can_wrap(total, width) is safe


def test_wrapped_differences_are_the_differences() -> None:
    doubles = Doubles.of(np.array([1.0, 2.0, 3.0]))
    total = doubles.total()
    quotas = np.array([2**40 * m // total for m in doubles.integers()])
    exact = [2**40 * m - int(q) * total for m, q in zip(doubles.integers(), quotas, strict=True)]
    assert ordered_differences(doubles, 2**40, total, quotas, width=1.0).tolist() == exact
    assert ordered_differences(doubles, 2**40, total, quotas, width=1.0, offset=5).tolist() == [e - 5 for e in exact]


def test_blocks_cover_everything_once() -> None:
    for size in (1, 8_191, 8_192, 8_193, 20_000):
        covered = [k for block in blocks(size) for k in range(size)[block]]
        assert covered == list(range(size))

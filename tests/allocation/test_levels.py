"""Shares at a level: exact decisions about them, with more precision only where doubles can't tell."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from calibudget.allocation.exact import doubles, integers
from calibudget.allocation.exact.doubles import Level
from calibudget.allocation.exact.integers import Doubles
from calibudget.allocation.exact.numbers import nearest_double


def level(values: Any, budget: Any) -> Any:
    utilities = np.array(values)
    doubles = Doubles.of(utilities)
    return Level.at(doubles, budget, doubles.total(), float(utilities.max()))


def whole_parts(values: Any, budget: Any) -> Any:
    return level(values, budget).parted()[0].tolist()


def test_computed_shares_stay_within_their_bounds(subtests: pytest.Subtests) -> None:
    for scale in [0, 899, 901, 950, -899, -901, -950, -1060]:
        with subtests.test(scale=scale):
            values = np.ldexp(np.random.default_rng(2).random(500) + 0.5, scale)
            made = level(values, 12_345)
            total = sum(map(Fraction, values.tolist()))
            exact = [Fraction(v) * 12_345 / total for v in values.tolist()]
            assert all(abs(Fraction(s) - t) <= t / 2**51 for s, t in zip(made.shares().tolist(), exact, strict=True))
            assert made.nearest().tolist() == [float(t) for t in exact]
            whole, parts = made.parted()
            assert whole.tolist() == [math.floor(t) for t in exact]
            assert parts.tolist() == [s - math.floor(t) for s, t in zip(made.shares().tolist(), exact, strict=True)]


def test_shares_far_beyond_any_bound_stay_finite() -> None:
    doubles = Doubles.of(np.array([1e-300, 1e300]))
    made = Level.at(doubles, 2**48, doubles.only(slice(0, 1)).total(), 1e-300)
    assert made.shares().tolist() == [pytest.approx(2.0**48), 2.0**60]
    both = np.array([2**48, 2**48])
    assert made.corrected(np.array([0, 1], dtype=np.int8), both - 1, both).tolist() == [0, 1]


def test_shares_that_are_whole_numbers_are_not_rounded_down() -> None:
    assert whole_parts([1.0, 2.0, 3.0, 6.0], 24) == [2, 4, 6, 12]
    assert whole_parts([1.0, 1.0, 1.0], 3) == [1, 1, 1]
    assert whole_parts([3.0, 1.0], 4) == [3, 1]
    tenths = [0.1, 0.1, 0.1, 0.3]
    assert whole_parts(tenths, 2**40) == [math.floor(2**40 * Fraction(u) / sum(map(Fraction, tenths))) for u in tenths]
    # 49 * (1 / 49) is below 1 in doubles.
    assert whole_parts([49.0] * 3, 3) == [1, 1, 1]
    # Halves down to 2**-60 and once more the last come to 2, in more bits than wrapped differences hold.
    assert whole_parts([0.5**k for k in range(61)] + [0.5**60], 4)[:3] == [2, 1, 0]


@pytest.mark.parametrize(
    ("odd", "quota"), [(7411668012067175, 951850), (6556921135441741, 89252675), (7609417738465427, 48070119)]
)
def test_whole_shares_that_twice_the_precision_takes_to_be_below_are_not_rounded_down(odd: int, quota: int) -> None:
    """The utilities come to odd * (2**20 + 1), in more bits than wrapped differences hold."""
    values = [float(odd), float((odd - 1) << 20), 2.0**20 - 2.0**-32, 2.0**-32]
    made = level(values, quota * (2**20 + 1))
    assert made.only(np.array([0]))._gaps(np.array([quota]), 0.0)[0] < 0
    assert made.parted()[0][0] == quota


def test_shares_just_below_whole_numbers_are_rounded_down() -> None:
    assert whole_parts([math.nextafter(1.0, 0.0), 1.0, 1.0], 3) == [0, 1, 1]
    assert whole_parts([1.0, 1.0, math.nextafter(1.0, 2.0)], 3) == [0, 0, 1]


def test_sides_are_corrected_on_exact_numbers() -> None:
    made = level([1.0, 1.0, math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0)], 8)
    lower, upper = np.array([2, 2, 2, 2]), np.array([2, 3, 2, 3])
    total = 3 + Fraction(math.nextafter(1.0, 2.0)) + Fraction(math.nextafter(1.0, 0.0)) - 1
    assert [8 * Fraction(u) / total > 2 for u in (1.0, math.nextafter(1.0, 2.0))] == [False, True]
    for wrong in (0, 1, -1):
        sides = np.full(4, wrong, dtype=np.int8)
        assert made.corrected(sides, lower, upper).tolist() == [-1, -1, 1, -1]


def test_a_share_at_its_bound_may_count_either_way() -> None:
    made = level([1.0, 1.0], 4)
    for sides in ([1, 1], [0, 0], [-1, -1], [0, 1]):
        given = np.array(sides, dtype=np.int8)
        assert made.corrected(given, np.array([2, 2]), np.array([2, 2])).tolist() == sides


@pytest.mark.parametrize("scale", [0, 960])
def test_shares_between_their_bounds_are_known_to_be(scale: int) -> None:
    made = level(np.ldexp([1.0, 2.0, 3.0], scale), 6)
    between = np.array([0, 1, 2]), np.array([2, 3, 4])
    for given in (1, 0, -1):
        sides = np.full(3, given, dtype=np.int8)
        assert made.corrected(sides, *between).tolist() == [0, 0, 0]
        assert made.corrected(sides, between[1], between[1] + 1).tolist() == [-1, -1, -1]
        assert made.corrected(sides, between[0] - 1, between[0]).tolist() == [1, 1, 1]


def exact_largest(values: Any, budget: Any, count: Any) -> Any:
    total = sum(map(Fraction, values))
    shares = [budget * Fraction(u) / total for u in values]
    order = sorted(range(len(values)), key=lambda k: (math.floor(shares[k]) - shares[k], k))
    return sorted(order[:count])


DUST = [2.0**-80, 2.0**-75 / 3]


def test_the_largest_remainders_are_those_of_rational_numbers(subtests: pytest.Subtests) -> None:
    for values, budget in [
        # Two shares on either side of 1/2, where differences of shares from integers wrap around to negative.
        ([1024 - 2.0**-42, 1024 + 2.0**-42, 2047.0, 1.0], 2),
        # Neighbouring doubles beside some so small that differences have too many bits to wrap.
        ([math.nextafter(1, 0), 1.0, math.nextafter(1, 2), 1.0, math.nextafter(1, 2), *DUST], 2),
        ([1 / 3, math.nextafter(1 / 3, 0), math.nextafter(1 / 3, 1), 0.7, *DUST], 1_000),
        ([0.1 + k * 2.0**-56 for k in range(9)] + DUST, 2**30 + 4),
        # Remainders that only more than twice the precision tells apart.
        ([1.5, 2.5, 2.0**-120], 4),
        ([2.5, 1.5, 2.0**-120], 4),
        ([2.5, 1.5, 3.5, 4.5, 2.0**-150], 12),
        # The same, on either side of where differences of shares from integers wrap around.
        ([2049.5, 2049.5, 2048.5, 1.0, 0.5, 2.0**-78], 6_149),
    ]:
        with subtests.test(budget=budget):
            made = level(values, budget)
            whole, parts = made.parted()
            left = budget - int(whole.sum())
            assert sorted(made.largest(whole, parts, left, None).tolist()) == exact_largest(values, budget, left)
            for count in range(1, len(values)):
                assert sorted(made.largest(whole, parts, count, None).tolist()) == exact_largest(values, budget, count)


def test_remainders_in_many_blocks_are_those_of_rational_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integers, "_BLOCK", 64)
    values = [*(1.0 + 2.0**-52 * np.random.default_rng(4).integers(0, 3, 900)).tolist(), *DUST]
    made = level(values, 1_300)
    whole, parts = made.parted()
    assert sorted(made.largest(whole, parts, 400, None).tolist()) == exact_largest(values, 1_300, 400)
    total = sum(map(Fraction, values))
    assert made.nearest().tolist() == [float(1_300 * Fraction(u) / total) for u in values]


def test_labels_settle_what_is_tied_on_exact_numbers() -> None:
    """Equal remainders beside one that is larger by less than doubles show."""
    for dust in ([], [2.0**-80]):
        made = level([1.0, 1.0, math.nextafter(1.0, 2.0), 1.0, *dust], 2)
        whole, parts = made.parted()
        chosen = [sorted(made.largest(whole, parts, 2, key).tolist()) for key in (None, "dcbax".__getitem__)]
        assert chosen == [[0, 2], [2, 3]]


def never(*_arguments: Any, **_named: Any) -> None:
    raise AssertionError("more precision than is needed")


def test_no_more_precision_is_asked_for_than_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the cost would tell, so it is the ways taken that are told here."""
    made = level([1.0, 2.0], 3)
    assert made._scaled() is made.doubles.values
    decided = Mock(side_effect=nearest_double)
    monkeypatch.setattr(doubles, "nearest_double", decided)
    many = level(np.random.default_rng(3).random(1_000), 12_345)
    total = sum(map(Fraction, many.doubles.values.tolist()))
    assert many.nearest().tolist() == [float(12_345 * Fraction(u) / total) for u in many.doubles.values.tolist()]
    assert decided.call_count <= 2
    monkeypatch.setattr(integers, "_ranks", never)
    assert whole_parts([1.0, 1.0, 1.0], 3) == [1, 1, 1]
    dust = [1.5, 2.5, 2.0**-66]
    whole, parts = level(dust, 4).parted()
    assert level(dust, 4).largest(whole, parts, 1, None).tolist() == exact_largest(dust, 4, 1)
    monkeypatch.setattr(doubles, "ordered_differences", never)
    assert whole_parts([1.0, 1.0, math.nextafter(1.0, 2.0)], 3) == [0, 0, 1]


def test_shares_too_small_for_a_double_are_no_error_of_the_callers() -> None:
    with np.errstate(all="raise"):
        assert level([1.0, 1e-300, 1e300], 9).shares().tolist()[2] == 9.0

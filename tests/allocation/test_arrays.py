"""The array form: what it accepts, and the exact layers beneath it."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from calibudget.allocation import apportion, apportion_arrays
from calibudget.allocation.filtering import LARGEST_BUDGET, exact_sum, filtered
from calibudget.allocation.levels import Level
from calibudget.allocation.residues import ExactDoubles, Residues, blocks, by_blocks
from calibudget.allocation.spread import spread_arrays
from calibudget.errors import AllocationError, InputTypeError

MIXED = np.array([0.1, 1.0, 3e300, 5e-324, 2.0**-1022, 7.25])


@pytest.mark.parametrize(
    "utilities",
    [
        [3.0, 2.0, 1.0],
        np.array([3, 2, 1], dtype=np.uint8),
        np.array([3, 2, 1], dtype=np.float16),
        np.array([0.75, 0.5, 0.25], dtype=np.float32),
        np.array([3 * 2**60, 2**61, 2**60]),
        np.array([3 * 2**60 + 1, 2**61, 2**60]),
        np.array([Fraction(3, 7), Fraction(2, 7), Fraction(1, 7)], dtype=object),
        np.array([Decimal("0.3"), Decimal("0.2"), Decimal("0.1")], dtype=object),
    ],
)
def test_arrays_of_all_kinds_of_numbers(utilities):
    made = apportion_arrays(utilities, 3)
    assert made.quotas.tolist() == [2, 1, 0]
    assert made.quotas.dtype == np.int64
    assert made.budget == 3
    assert made.shares().tolist() == pytest.approx([1.5, 1.0, 0.5])


def test_large_integers_are_not_rounded_to_doubles():
    assert apportion_arrays(np.array([2**53, 2**53 + 1]), 1).quotas.tolist() == [0, 1]
    assert apportion_arrays(np.array([2**53, 2**53]), 1).quotas.tolist() == [1, 0]
    assert apportion_arrays(np.array([2**53 - 1, 2**53]), 1).quotas.tolist() == [0, 1]


@pytest.mark.parametrize("budget", [LARGEST_BUDGET, LARGEST_BUDGET + 1, 2**63 - 1])
def test_budgets_beyond_the_filter_go_by_integers(budget):
    utilities = [0.1, 0.2, 0.7]
    expected = apportion(dict(zip("abc", map(Fraction, utilities), strict=True)), budget)
    made = apportion_arrays(utilities, budget)
    assert made.quotas.tolist() == list(expected.quotas.values())
    assert made.shares().tolist() == list(expected.shares.values())


def test_labels_settle_ties_only():
    even = np.ones(5)
    assert apportion_arrays(even, 7).quotas.tolist() == [2, 2, 1, 1, 1]
    assert apportion_arrays(even, 7, labels=["e", "d", "c", "b", "a"]).quotas.tolist() == [1, 1, 1, 2, 2]
    assert apportion_arrays(even, 7, labels=np.array(["b", "z", "a", "c", "d"])).quotas.tolist() == [2, 1, 2, 1, 1]
    uneven = np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    assert apportion_arrays(uneven, 7, labels=list("edcba")).quotas.tolist() == [1, 1, 3, 1, 1]
    upper = np.array([9, 0, 9, 9, 9])
    assert apportion_arrays(even, 6, upper=upper, labels=list("edcba")).quotas.tolist() == [1, 0, 1, 2, 2]


def test_labels_settle_ties_of_exact_numbers_too():
    thirds = np.array([Fraction(1, 3)] * 3, dtype=object)
    assert apportion_arrays(thirds, 4, labels=["c", "a", "b"]).quotas.tolist() == [1, 2, 1]
    assert apportion_arrays(thirds, 5).quotas.tolist() == [2, 2, 1]
    made = apportion_arrays(thirds, 4, labels=["c", "a", "b"], upper=[0, 9, 9], lower=[0, 0, 3])
    assert made.quotas.tolist() == [0, 1, 3]
    assert made.shares().tolist() == [0.0, 1.0, 3.0]


def test_bounds_may_be_any_integers():
    made = apportion_arrays(
        [1.0, 9.0], 10, lower=np.array([2, 0], dtype=np.uint8), upper=np.array([2**64 - 1, 7], dtype=np.uint64)
    )
    assert made.quotas.tolist() == [3, 7]


def test_no_sources():
    assert apportion_arrays([], 0).quotas.tolist() == []
    assert apportion_arrays([], 0).shares().tolist() == []
    with pytest.raises(AllocationError, match="there are no sources to spend a budget of 5 on"):
        apportion_arrays([], 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"utilities": [1.0, -1.0]}, "the utility of source 1 must not be negative, but is -1.0"),
        ({"utilities": [1.0, -1.0], "labels": ["x", "y"]}, "the utility of 'y' must not be negative, but is -1.0"),
        ({"utilities": [math.nan, 1.0]}, "the utility of source 0 must be finite, but is nan"),
        ({"utilities": [1.0, math.inf]}, "the utility of source 1 must be finite, but is inf"),
        ({"lower": [0, -1]}, "the lower bound of source 1 must not be negative, but is -1"),
        ({"lower": [0, 6]}, "the lower bounds come to 6, 1 above the budget 5"),
        ({"lower": [1, 3], "upper": [9, 2]}, "the lower bound of source 1 is 3 and its upper bound only 2"),
        ({"upper": [1, 3]}, "the upper bounds come to 4, 1 short of the budget 5"),
        ({"labels": ["a"]}, "there are 1 labels for 2 utilities"),
        ({"budget": -5}, "the budget must not be negative, but is -5"),
        ({"budget": 2**63}, "the budget 9,223,372,036,854,775,808 doesn't fit 64-bit integers: use apportion"),
    ],
)
def test_refusals_name_the_source_and_the_numbers(arguments, message):
    inputs = {"utilities": [1.0, 1.0], "budget": 5} | arguments
    with pytest.raises(AllocationError, match=f"^{re.escape(message)}$"):
        apportion_arrays(inputs.pop("utilities"), inputs.pop("budget"), **inputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"utilities": [[1.0, 1.0]]}, "utilities must have one dimension, not 2"),
        (
            {"utilities": [True, False]},
            "utilities must be an array of floats up to 64 bits or of integers, not of bool",
        ),
        ({"utilities": np.array([1, 1], dtype=np.longdouble)}, "floats up to 64 bits or of integers, not of float128"),
        ({"utilities": ["1", "2"]}, "utilities must be an array of floats"),
        ({"utilities": np.array([1, True], dtype=object)}, "the utility of 'source 1' must be a real number"),
        ({"lower": [0.0, 1.0]}, "lower must be an array of integers, not of float64"),
        ({"upper": [5, 5, 5]}, "upper must have shape (2,), not (3,)"),
        ({"budget": 5.0}, "the budget must be an integer, not 5.0"),
    ],
)
def test_arrays_of_the_wrong_type_are_refused(arguments, message):
    inputs = {"utilities": [1.0, 1.0], "budget": 5} | arguments
    with pytest.raises(InputTypeError, match=re.escape(message)):
        apportion_arrays(inputs.pop("utilities"), inputs.pop("budget"), **inputs)


def test_doubles_come_apart_exactly():
    doubles = ExactDoubles.of(MIXED)
    everything = np.arange(len(MIXED))
    unit = Fraction(2) ** doubles.base
    assert [m * unit for m in doubles.integers(everything)] == [Fraction(v) for v in MIXED.tolist()]
    assert [int(w) for w in doubles.wrapped(everything)] == [m % 2**64 for m in doubles.integers(everything)]
    assert doubles.total() * unit == sum(map(Fraction, MIXED.tolist()))
    assert doubles.total(MIXED[:2]) * unit == Fraction(0.1) + 1


def test_a_common_unit_is_the_lowest_bit_of_the_smallest():
    assert ExactDoubles.of(np.array([1.0, 8.0])).base == -52
    assert ExactDoubles.of(np.array([5e-324, 1.0])).base == -1074
    assert ExactDoubles.of(np.array([2.0**-1022])).base == -1074
    assert ExactDoubles.of(np.array([2.0**-1021])).base == -1073


def test_sums_of_many_doubles_are_exact():
    rng = np.random.default_rng(0)
    for values in (rng.random(30_000), 10.0 ** rng.uniform(-300, 300, 3_000), rng.integers(1, 99, 20_000) * 5e-324):
        doubles = ExactDoubles.of(values)
        assert doubles.total() * Fraction(2) ** doubles.base == sum(map(Fraction, values.tolist()))


def test_differences_keep_their_signs_and_order_by_wrapping_and_by_ranking():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.integers(1, 40, 60) / 8, [0.1, 0.2, 0.3, 0.7]])
    doubles = ExactDoubles.of(values)
    budget, total = 1_000, doubles.total()
    residues = Residues(doubles=doubles, budget=budget, total=total)
    index = np.arange(len(values))
    integers = doubles.integers(index)
    quotas = np.array([budget * m // total for m in integers])
    for offset in (0, total // 3, budget * integers[0] - int(quotas[0]) * total):
        exact = [budget * m - int(q) * total - offset for m, q in zip(integers, quotas, strict=True)]
        # Total has 60 bits here, so a width of 2 is the widest that wraps safely.
        wrapped = residues.ordered(index, quotas, 2.0, offset)
        ranked = residues.ordered(index, quotas, 2.0**40, offset)
        for keys in (wrapped, ranked):
            assert [int(np.sign(key)) for key in keys] == [(e > 0) - (e < 0) for e in exact]
            assert np.argsort(keys, kind="stable").tolist() == sorted(range(len(exact)), key=exact.__getitem__)
            assert len(set(keys.tolist())) == len(set(exact))


def test_wrapped_differences_are_the_differences():
    values = np.array([1.0, 2.0, 3.0])
    doubles = ExactDoubles.of(values)
    residues = Residues(doubles=doubles, budget=2**40, total=doubles.total())
    quotas = np.array([2**40 * m // doubles.total() for m in doubles.integers(np.arange(3))])
    exact = [2**40 * m - int(q) * doubles.total() for m, q in zip(doubles.integers(np.arange(3)), quotas, strict=True)]
    assert residues.ordered(np.arange(3), quotas, 1.0).tolist() == exact


def test_blocks_cover_everything_once():
    for size in (1, 8_191, 8_192, 8_193, 20_000):
        covered = [k for block in blocks(size) for k in range(size)[block]]
        assert covered == list(range(size))
    assert by_blocks(np.add, np.arange(20_000), np.ones(20_000)).tolist() == list(range(1, 20_001))


def test_sums_of_integers_do_not_overflow():
    assert exact_sum(np.array([], dtype=np.int64)) == 0
    assert exact_sum(np.array([3, 4])) == 7
    assert exact_sum(np.full(5, 2**62)) == 5 * 2**62
    assert exact_sum(np.full(9, 2**63 - 1)) == 9 * (2**63 - 1)


def level(values, budget):
    utilities = np.array(values)
    doubles = ExactDoubles.of(utilities)
    return Level.at(doubles, budget, doubles.total(), float(utilities.max()))


@pytest.mark.parametrize("scale", [0, 950, -950, -1060])
def test_computed_shares_stay_within_their_bounds(scale):
    values = np.ldexp(np.random.default_rng(2).random(500) + 0.5, scale)
    made = level(values, 12_345)
    total = sum(map(Fraction, values.tolist()))
    exact = [Fraction(v) * 12_345 / total for v in values.tolist()]
    assert all(abs(Fraction(s) - t) <= t / 2**51 for s, t in zip(made.shares.tolist(), exact, strict=True))
    index = np.arange(500)
    assert made.nearest(index).tolist() == [float(t) for t in exact]
    assert made.whole_parts(index).tolist() == [math.floor(t) for t in exact]


def test_shares_that_are_whole_numbers_are_not_rounded_down():
    assert level([1.0, 2.0, 3.0, 6.0], 24).whole_parts(np.arange(4)).tolist() == [2, 4, 6, 12]
    assert level([1.0, 1.0, 1.0], 3).whole_parts(np.arange(3)).tolist() == [1, 1, 1]
    assert level([3.0, 1.0], 4).whole_parts(np.arange(2)).tolist() == [3, 1]


def test_shares_just_below_whole_numbers_are_rounded_down():
    below = math.nextafter(1.0, 0.0)
    assert level([below, 1.0, 1.0], 3).whole_parts(np.arange(3)).tolist() == [0, 1, 1]
    assert level([1.0, 1.0, math.nextafter(1.0, 2.0)], 3).whole_parts(np.arange(3)).tolist() == [0, 0, 1]


def test_near_ties_are_told_apart_in_twice_the_precision_and_beyond():
    above = math.nextafter(1.0, 2.0)
    utilities = np.ones(9)
    for winner in range(9):
        utilities[:] = 1.0
        utilities[winner] = above
        assert np.flatnonzero(apportion_arrays(utilities, 1).quotas).tolist() == [winner]
        utilities[:] = 2.0**60
        utilities[winner] = 2.0**60 * above
        utilities[(winner + 1) % 9] = 1.0
        assert np.flatnonzero(apportion_arrays(utilities, 4).quotas)[:1].tolist() <= [winner]
        assert apportion_arrays(utilities, 4).quotas[winner] == 1


def test_a_filter_that_cannot_decide_says_so():
    """Wide utilities on a plateau between floors and caps: integers take over, and the answer is theirs."""
    utilities = np.array([1.0, 1e308, 1.0])
    lower, upper = np.array([1, 0, 0]), np.array([2, 2, 2])
    assert filtered(utilities, lower, upper, 3) is None
    assert apportion_arrays(utilities, 3, lower=lower, upper=upper).quotas.tolist() == [1, 2, 0]


def test_no_budget_and_full_budget_need_no_level():
    lower, upper = np.array([1, 2]), np.array([5, 6])
    utilities = np.array([1.0, 3.0])
    for budget, expected in ((3, [1, 2]), (11, [5, 6])):
        made = spread_arrays(utilities, lower, upper, budget)
        assert made.quotas.tolist() == expected
        assert made.shares().tolist() == expected
    assert lower.tolist() == [1, 2]


def test_sources_at_bounds_do_not_take_part():
    utilities = np.array([0.0, 5.0, 1.0, 1.0])
    made = spread_arrays(utilities, np.array([2, 4, 0, 0]), np.array([9, 4, 9, 9]), 11)
    assert made.quotas.tolist() == [2, 4, 3, 2]
    assert made.shares().tolist() == [2.0, 4.0, 2.5, 2.5]


def test_what_the_filter_does_not_take_is_none():
    one = np.ones(1)
    assert spread_arrays(np.array([]), np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0) is None
    assert spread_arrays(one, np.zeros(1, dtype=np.int64), np.array([2**50]), LARGEST_BUDGET + 1) is None
    assert spread_arrays(one, np.zeros(1, dtype=np.int64), np.array([2**50]), LARGEST_BUDGET) is not None

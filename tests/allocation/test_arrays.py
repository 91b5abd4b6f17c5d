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
from calibudget.allocation.residues import Doubles, blocks, can_wrap, ordered_differences
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


def test_quotas_are_integers_whatever_the_utilities():
    for utilities in ([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], np.array([0, 3]), [Fraction(0), Fraction(1)]):
        made = apportion_arrays(utilities, 5, upper=[3, 4])
        assert made.quotas.dtype == np.int64
        assert made.quotas.sum() == 5
    assert apportion_arrays([0.0, 1.0], 5).quotas.tolist() == [0, 5]


def test_upper_bounds_may_be_just_enough():
    assert apportion_arrays([1.0, 9.0], 5, upper=[3, 2]).quotas.tolist() == [3, 2]
    assert apportion_arrays([1.0], 2**63 - 1, upper=np.array([2**64 - 1], dtype=np.uint64)).quotas.tolist() == [
        2**63 - 1
    ]


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
        ({"upper": [9, -1]}, "the upper bound of source 1 must not be negative, but is -1"),
        ({"lower": [0, 6]}, "the lower bounds come to 6, 1 above the budget 5"),
        ({"lower": [1, 3], "upper": [9, 2]}, "the lower bound of source 1 is 3 and its upper bound only 2"),
        ({"upper": [1, 3]}, "the upper bounds come to 4, 1 short of the budget 5"),
        ({"labels": ["a"]}, "labels must be as many as utilities (2), not 1"),
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
    doubles = Doubles.of(MIXED)
    unit = Fraction(2) ** doubles.base
    assert [m * unit for m in doubles.integers()] == [Fraction(v) for v in MIXED.tolist()]
    assert [int(w) for w in doubles.wrapped()] == [m % 2**64 for m in doubles.integers()]
    assert doubles.total() * unit == sum(map(Fraction, MIXED.tolist()))
    assert doubles.only(slice(0, 2)).total() * unit == Fraction(0.1) + 1
    assert doubles.only(np.array([3])).integers() == [1]


def test_a_common_unit_is_the_lowest_bit_of_the_smallest():
    assert Doubles.of(np.array([1.0, 8.0])).base == -52
    assert Doubles.of(np.array([5e-324, 1.0])).base == -1074
    assert Doubles.of(np.array([2.0**-1022])).base == -1074
    assert Doubles.of(np.array([2.0**-1021])).base == -1073


def test_sums_of_many_doubles_are_exact():
    rng = np.random.default_rng(0)
    for values in (rng.random(30_000), 10.0 ** rng.uniform(-300, 300, 3_000), rng.integers(1, 99, 20_000) * 5e-324):
        doubles = Doubles.of(values)
        assert doubles.total() * Fraction(2) ** doubles.base == sum(map(Fraction, values.tolist()))


def test_ranked_differences_keep_their_signs_and_order():
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


def test_wrapped_differences_of_near_ties_in_many_blocks():
    steps = np.random.default_rng(3).integers(-50, 50, 20_000)
    doubles = Doubles.of(1.0 + steps * 2.0**-52)
    budget, total = 30_000, doubles.total()
    quotas = np.ones(20_000, dtype=np.int64)
    offset = (budget << -doubles.base) - total
    exact = [budget * m - total - offset for m in doubles.integers()]
    made = ordered_differences(doubles, budget, total, quotas, width=2.0**-30, offset=offset)
    assert made.tolist() == exact


def test_ranks_tell_zero_from_its_neighbours():
    doubles = Doubles.of(np.array([1.0, 2.0, 3.0, 3.0]))
    total = doubles.total()
    # 9 units at 1 : 2 : 3 : 3 are 1, 2, 3 and 3: differences from (1, 1, 4, 3) are 0, 1, -1, 0 units.
    quotas = np.array([1, 1, 4, 4])
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60).tolist() == [0, 1, -1, -1]
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60, offset=-1).tolist() == [1, 2, -1, -1]
    assert ordered_differences(doubles, 9, total, quotas, width=2.0**60, offset=1).tolist() == [-1, 1, -2, -2]


@pytest.mark.parametrize(
    ("total", "width", "safe"),
    [
        (2**61 - 1, 0.5, True),
        (2**61 - 1, 1.0, True),
        (2**61, 1.0, False),
        (1, 2.0**60, True),
        (1, 2.0**61, False),
        (2**90, 2.0**-30, True),
        (2**90, 2.0**-29, False),
    ],
)
def test_differences_wrap_only_where_they_are_known_to_fit(total, width, safe):
    """total * width stays below 2**62."""
    assert can_wrap(total, width) is safe


def test_wrapped_differences_are_the_differences():
    doubles = Doubles.of(np.array([1.0, 2.0, 3.0]))
    total = doubles.total()
    quotas = np.array([2**40 * m // total for m in doubles.integers()])
    exact = [2**40 * m - int(q) * total for m, q in zip(doubles.integers(), quotas, strict=True)]
    assert ordered_differences(doubles, 2**40, total, quotas, width=1.0).tolist() == exact
    assert ordered_differences(doubles, 2**40, total, quotas, width=1.0, offset=5).tolist() == [e - 5 for e in exact]


def test_blocks_cover_everything_once():
    for size in (1, 8_191, 8_192, 8_193, 20_000):
        covered = [k for block in blocks(size) for k in range(size)[block]]
        assert covered == list(range(size))


def test_sums_of_integers_do_not_overflow():
    assert exact_sum(np.array([], dtype=np.int64)) == 0
    assert exact_sum(np.array([3, 4])) == 7
    assert exact_sum(np.full(5, 2**62)) == 5 * 2**62
    assert exact_sum(np.full(9, 2**63 - 1)) == 9 * (2**63 - 1)


def level(values, budget):
    utilities = np.array(values)
    doubles = Doubles.of(utilities)
    return Level.at(doubles, budget, doubles.total(), float(utilities.max()))


def whole_parts(values, budget):
    return level(values, budget).parted()[0].tolist()


@pytest.mark.parametrize("scale", [0, 899, 901, 950, -899, -901, -950, -1060])
def test_computed_shares_stay_within_their_bounds(scale):
    values = np.ldexp(np.random.default_rng(2).random(500) + 0.5, scale)
    made = level(values, 12_345)
    total = sum(map(Fraction, values.tolist()))
    exact = [Fraction(v) * 12_345 / total for v in values.tolist()]
    assert all(abs(Fraction(s) - t) <= t / 2**51 for s, t in zip(made.shares().tolist(), exact, strict=True))
    assert made.nearest().tolist() == [float(t) for t in exact]
    whole, parts = made.parted()
    assert whole.tolist() == [math.floor(t) for t in exact]
    assert parts.tolist() == [s - math.floor(t) for s, t in zip(made.shares().tolist(), exact, strict=True)]


def test_shares_far_beyond_any_bound_stay_finite():
    doubles = Doubles.of(np.array([1e-300, 1e300]))
    made = Level.at(doubles, 2**48, doubles.only(slice(0, 1)).total(), 1e-300)
    assert made.shares().tolist() == [pytest.approx(2.0**48), 2.0**60]
    both = np.array([2**48, 2**48])
    assert made.corrected(np.array([0, 1], dtype=np.int8), both - 1, both).tolist() == [0, 1]


def test_shares_that_are_whole_numbers_are_not_rounded_down():
    assert whole_parts([1.0, 2.0, 3.0, 6.0], 24) == [2, 4, 6, 12]
    assert whole_parts([1.0, 1.0, 1.0], 3) == [1, 1, 1]
    assert whole_parts([3.0, 1.0], 4) == [3, 1]
    assert whole_parts([0.1] * 3 + [0.3], 2**40) == [
        math.floor(2**40 * Fraction(u) / TENTHS) for u in [0.1] * 3 + [0.3]
    ]


TENTHS = 3 * Fraction(0.1) + Fraction(0.3)


def test_shares_just_below_whole_numbers_are_rounded_down():
    assert whole_parts([math.nextafter(1.0, 0.0), 1.0, 1.0], 3) == [0, 1, 1]
    assert whole_parts([1.0, 1.0, math.nextafter(1.0, 2.0)], 3) == [0, 0, 1]


def test_sides_are_corrected_on_exact_numbers():
    made = level([1.0, 1.0, math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0)], 8)
    lower, upper = np.array([2, 2, 2, 2]), np.array([2, 3, 2, 3])
    total = 3 + Fraction(math.nextafter(1.0, 2.0)) + Fraction(math.nextafter(1.0, 0.0)) - 1
    assert [8 * Fraction(u) / total > 2 for u in (1.0, math.nextafter(1.0, 2.0))] == [False, True]
    for wrong in (0, 1, -1):
        sides = np.full(4, wrong, dtype=np.int8)
        assert made.corrected(sides, lower, upper).tolist() == [-1, -1, 1, -1]


def test_a_share_at_its_bound_may_count_either_way():
    made = level([1.0, 1.0], 4)
    for sides in ([1, 1], [0, 0], [-1, -1], [0, 1]):
        given = np.array(sides, dtype=np.int8)
        assert made.corrected(given, np.array([2, 2]), np.array([2, 2])).tolist() == sides


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

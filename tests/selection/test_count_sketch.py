"""CountSketch: the rule bit by bit, its theory over seeds, and what it refuses (paper, appendix)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibudget.errors import InputError, InputTypeError
from calibudget.selection.count_sketch import CountSketch

GOLDEN = [49.0, 16.0, -80.0, 39.0, 38.0, 23.0, 3.0, 18.0]
GOLDEN_BINS = "b8510ce20a655743f95e3cce1230b12838546c21a99ca9fc0785d0eac5d458f9"
INTEGERS = np.arange(-500, 500, dtype=np.float64)


def word(seed: int, position: int) -> int:
    """The definition, read off docs/decisions/0010-countsketch.md, one position at a time."""
    digest = hashlib.blake2b(f'["countsketch",{seed},{position // 16}]'.encode(), digest_size=64).digest()
    offset = 4 * (position % 16)
    return int.from_bytes(digest[offset : offset + 4], "little")


def slow_sketch(vector: np.ndarray, dimension: int, seed: int) -> np.ndarray:
    positive, negative = np.zeros(dimension), np.zeros(dimension)
    for position, value in enumerate(vector):
        bits = word(seed, position)
        (negative if bits & 1 else positive)[(bits >> 1) * dimension >> 31] += float(value)
    return positive - negative


def test_the_sketch_is_the_documented_rule_bit_for_bit(subtests: pytest.Subtests) -> None:
    for dimension in [1, 2, 7, 64, 40_000]:
        with subtests.test(dimension=dimension):
            vector = np.random.default_rng(0).standard_normal(777)
            assert (
                CountSketch(dimension=dimension, seed=42)(vector).tobytes()
                == slow_sketch(vector, dimension, 42).tobytes()
            )


def test_a_sketch_stays_what_it_was_in_every_version_and_on_every_platform() -> None:
    assert CountSketch(dimension=8, seed=42)(np.arange(40)).tolist() == GOLDEN
    bins = CountSketch(dimension=8192, seed=7).bins(5, 1005)
    assert hashlib.sha256(bins.astype("<u2").tobytes()).hexdigest() == GOLDEN_BINS


def test_inner_products_have_the_mean_and_the_variance_of_the_theory() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(60), rng.standard_normal(60)
    x[0] = 6.0  # a heavy entry: a sketch without signs or with unequal buckets would show it
    dimension, seeds = 16, 4_000
    products = np.array([_inner(x, y, dimension, seed) for seed in range(seeds)])
    exact = float(x @ y)
    variance = float((x @ x) * (y @ y) + exact**2 - 2 * (x**2 @ y**2)) / dimension
    assert abs(products.mean() - exact) < 4 * np.sqrt(variance / seeds)
    assert products.var() == pytest.approx(variance, rel=0.1)


def _inner(x: np.ndarray, y: np.ndarray, dimension: int, seed: int) -> float:
    sketch = CountSketch(dimension=dimension, seed=seed)
    return float(sketch(x) @ sketch(y))


def test_buckets_and_signs_are_uniform_and_go_together_by_chance_only() -> None:
    bins = CountSketch(dimension=12, seed=5).bins(0, 48_000)
    counts = np.bincount(bins, minlength=24)
    expected = 48_000 / 24
    assert ((counts - expected) ** 2 / expected).sum() < 49.7  # chi-square, 23 degrees of freedom, p = 0.001


def test_the_sketch_is_linear_exactly_on_integers() -> None:
    sketch, other = CountSketch(dimension=32, seed=9), np.roll(INTEGERS, 17) * 3
    combined = sketch(2 * INTEGERS - 5 * other)
    assert (combined == 2 * sketch(INTEGERS) - 5 * sketch(other)).all()
    assert (combined != sketch(2 * INTEGERS)).any()


def test_blocks_leave_no_trace_in_the_bits(subtests: pytest.Subtests) -> None:
    vector = np.random.default_rng(2).standard_normal(1000).astype(np.float32) * 1e3
    whole = CountSketch(dimension=10, seed=1)(vector).tobytes()
    for block_size in [1, 16, 17, 500, 999, 1000, 5000]:
        with subtests.test(block_size=block_size):
            assert CountSketch(dimension=10, seed=1, block_size=block_size)(vector).tobytes() == whole


def test_sums_that_start_anew_in_each_block_would_leave_a_trace() -> None:
    vector = np.random.default_rng(2).standard_normal(1000)
    sketch = CountSketch(dimension=10, seed=1)
    halves = sketch(np.concatenate([vector[:500], np.zeros(500)])) + sketch(
        np.concatenate([np.zeros(500), vector[500:]])
    )
    assert halves.tobytes() != sketch(vector).tobytes()
    np.testing.assert_allclose(halves, sketch(vector), rtol=1e-12)


def test_real_dtypes_are_taken(subtests: pytest.Subtests) -> None:
    for kind in ["f2", "f4", "f8", ">f8", "i1", "u2", "i8"]:
        with subtests.test(kind=kind):
            vector = np.arange(100).astype(kind)
            assert (
                CountSketch(dimension=4, seed=0)(vector) == CountSketch(dimension=4, seed=0)(np.arange(100.0))
            ).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [0, 150, 299])
def test_a_nonfinite_entry_is_refused_by_position(bad: Any, position: int) -> None:
    vector = np.ones(300, dtype=np.float32)
    sketch = CountSketch(dimension=4, seed=0, block_size=128)
    assert np.isfinite(sketch(vector)).all()
    vector[position] = bad
    with pytest.raises(InputError, match=f"position {position} is"):
        sketch(vector)


def test_infinities_that_would_cancel_are_refused() -> None:
    with pytest.raises(InputError, match="position 0"):
        CountSketch(dimension=1, seed=0)([np.inf, -np.inf, np.inf])


def test_finite_entries_whose_sum_overflows_are_refused() -> None:
    with pytest.raises(InputError, match="beyond the range of float64"):
        CountSketch(dimension=1, seed=0)(np.full(64, 1.7e308))


def test_finite_bins_whose_difference_overflows_are_refused() -> None:
    signs = [word(0, position) & 1 for position in range(32)]
    vector = np.zeros(32)
    vector[signs.index(0)], vector[signs.index(1)] = 1.7e308, -1.7e308
    with pytest.raises(InputError, match=r"^the vector's entries are finite, .* scale the vector down$"):
        CountSketch(dimension=1, seed=0)(vector)


def test_bins_are_as_narrow_as_they_can_be_and_a_range_may_be_empty() -> None:
    for dimension, kind in [(2**15, np.uint16), (2**15 + 1, np.uint32), (2**24, np.uint32)]:
        bins = CountSketch(dimension=dimension, seed=3).bins(7, 40)
        assert bins.dtype == kind
        expected = [2 * ((word(3, at) >> 1) * dimension >> 31) + (word(3, at) & 1) for at in range(7, 40)]
        assert bins.tolist() == expected
    assert CountSketch(dimension=4, seed=0).bins(5, 5).shape == (0,)


def test_bad_parameters_positions_and_vectors_are_refused_by_name(subtests: pytest.Subtests) -> None:
    sketch = CountSketch(dimension=8, seed=0)

    def made(**changes: Any) -> CountSketch:
        return CountSketch(**{"dimension": 8, "seed": 0, **changes})

    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: made(dimension=0), InputError, "^dimension must be 1 to 16777216, not 0"),
        (lambda: made(dimension=2**24 + 1), InputError, "^dimension must be 1 to 16777216, not 16777217"),
        (lambda: made(block_size=0), InputError, "^block_size must be at least 1, not 0"),
        (lambda: sketch.bins(3, 2), InputError, "^positions 3 to 2 are no range"),
        (lambda: sketch.bins(-1, 2), InputError, "^positions -1 to 2 are no range"),
        (lambda: sketch([[1.0], [2.0, 3.0]]), InputError, "^the vector is no array of numbers: "),
        (lambda: sketch([[1.0, 2.0]]), InputError, r"this has the shape \(1, 2\); flatten it first"),
        (lambda: sketch(np.zeros(3, np.longdouble)), InputTypeError, "of at most 64 bits, not (long|float)"),
        *(
            (lambda bad=bad: sketch(bad), InputTypeError, "^a vector's entries must be real numbers")
            for bad in ([True, False], [1j], ["1"], [None], np.zeros(1, "M8[s]"))
        ),
    ]
    for attempt, error, said in cases:
        with subtests.test(said=said), pytest.raises(error, match=said):
            attempt()

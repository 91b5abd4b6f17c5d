"""Bootstrap means and spreads against plain fractions, and golden vectors that hold on every platform."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from calibudget.allocation.bootstrap import _SOURCES, _root_of_variance, _standard_deviations, bootstrap
from calibudget.keys import bootstrap_streams, named_stream

GOLDEN_MEANS = [1.24375, 1.65, 1.6375, 1.425]
GOLDEN_SD = 0.1674938781530537
ERRORS = [0.1, 2.5, 1.75, 3.25, 0.5, 0.7, 1.0, 4.0]


def spread(errors: Any, label: str = "a", *, resamples: int, seed: int = 1) -> tuple[Any, float]:
    (found,) = bootstrap([(label, errors)], resamples=resamples, seed=seed)
    return found


def means_of(errors: Any, label: str = "a", *, resamples: int, seed: int = 1) -> Any:
    return spread(errors, label, resamples=resamples, seed=seed)[0]


def exact_means(errors: Any, label: Any, resamples: Any, seed: Any) -> Any:
    """One draw, one fraction at a time."""
    ordered = sorted(errors)
    stream = named_stream("bootstrap", seed, label)

    def draw() -> Any:
        return Fraction(ordered[((int(stream.random_raw()) >> 32) * len(ordered)) >> 32])

    return [sum((draw() for _ in ordered), Fraction(0)) / len(ordered) for _ in range(resamples)]


def test_means_are_those_of_exact_arithmetic(subtests: pytest.Subtests) -> None:
    for scale in [1.0, 1e-9, 1e9, -1.0]:
        for size in [2, 3, 7, 64, 100]:
            with subtests.test(size=size, scale=scale):
                errors = (np.random.default_rng(size).random(size) * scale).tolist()
                made = means_of(errors, "boolq", resamples=25, seed=7)
                assert made.shape == (25,)
                assert made.dtype == np.float64
                exact = exact_means(errors, "boolq", 25, 7)
                assert all(abs(Fraction(m) - e) <= abs(e) / 2**52 for m, e in zip(made.tolist(), exact, strict=True))


def test_golden_vectors() -> None:
    """Fixed by the definition alone: stream, order of draws, grid and rounding."""
    means, sd = spread(ERRORS, "boolq", resamples=4, seed=42)
    assert means.tolist() == GOLDEN_MEANS
    assert [float(m) for m in exact_means(ERRORS, "boolq", 4, 42)] == GOLDEN_MEANS
    assert sd == GOLDEN_SD


def test_the_order_of_the_errors_changes_nothing() -> None:
    assert np.array_equal(
        means_of(ERRORS, "a", resamples=50, seed=1), means_of(ERRORS[::-1], "a", resamples=50, seed=1)
    )


def test_each_source_and_seed_has_a_stream_of_its_own() -> None:
    first = means_of(ERRORS, "a", resamples=50, seed=1)
    assert not np.array_equal(first, means_of(ERRORS, "b", resamples=50, seed=1))
    assert not np.array_equal(first, means_of(ERRORS, "a", resamples=50, seed=2))


def test_more_replicates_keep_the_first() -> None:
    few, many = (means_of(ERRORS, "a", resamples=r, seed=1) for r in (10, 30))
    assert np.array_equal(few, many[:10])


@pytest.mark.parametrize(("size", "resamples"), [(40_000, 3), (10_000, 5)])  # one replicate at a time; three, then two
def test_a_large_split_is_drawn_in_parts(size: int, resamples: int) -> None:
    errors = np.random.default_rng(0).random(size)
    made = means_of(errors, "a", resamples=resamples, seed=1)
    assert len(made) == resamples
    ordered, stream = np.sort(errors), named_stream("bootstrap", 1, "a")
    for mean in made:
        draws = ((stream.random_raw(size) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)
        assert mean == pytest.approx(math.fsum(ordered[draws.astype(np.int64)]) / size, rel=1e-15)


def hard_rows() -> Iterator[Any]:
    rng = np.random.default_rng(5)
    yield from (rng.random(r) for r in (1, 2, 3, 200))
    yield 1e6 + rng.random(200)
    yield rng.random(200) - 0.5
    yield rng.random(50) * 10.0 ** rng.uniform(-30, 30, 50)
    yield np.array([0.0, 1.0, 1.0])
    yield np.array([0.0, 0.0])
    yield np.array([1.0, 1.0 + 2**-52])
    yield np.array([1e300, -1e300])
    yield np.array([2.0**-1000, 3 * 2.0**-1000, 2.0**-999])
    yield rng.random(3_000)
    yield np.array([0.0, 1e-20, 3e-20])
    yield np.array([0.0, 5e-324, 1e-323])
    yield np.array([1.0, math.nextafter(2, 1)] * 2_500)  # squares of gaps that sum up to more than 64 bits
    yield np.array([0.0, 1e300, 1.0])
    yield np.array([1.5] * 3 + [-2.25])
    yield from (rng.random(200) * 10.0 ** rng.integers(-20, 20) for _ in range(20))


def test_the_spread_is_correctly_rounded() -> None:
    """The standard library's pstdev works on exact fractions and rounds once."""
    for row in hard_rows():
        assert _standard_deviations(row[np.newaxis]) == [statistics.pstdev(row.tolist())]


def test_many_sources_get_what_each_gets_alone() -> None:
    """More sources than one batch holds, of different sizes."""
    rng = np.random.default_rng(2)
    errors = [(f"s{k}", rng.random(2 + k % 9)) for k in range(150)]
    for (label, values), (means, sd) in zip(errors, bootstrap(errors, resamples=20, seed=3), strict=True):
        alone, own = spread(values, label, resamples=20, seed=3)
        assert np.array_equal(means, alone)
        assert sd == own == statistics.pstdev(alone.tolist())


def test_streams_made_anew_are_those_made_alone() -> None:
    streams = bootstrap_streams(42)
    for label in ("a", "b", "a", "é"):
        assert np.array_equal(streams(label).random_raw(11), named_stream("bootstrap", 42, label).random_raw(11))


def test_ordinary_spreads_are_taken_on_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Mock(return_value=math.nan)
    monkeypatch.setattr(statistics, "pstdev", exact)
    wide = np.resize([0.0, 1e300, 1.0], 200)
    sds = _standard_deviations(np.stack([1 + np.random.default_rng(1).random(200) / 9, wide]))
    assert [math.isnan(sd) for sd in sds] == [False, True]
    exact.assert_called_once_with(wide.tolist())


def test_sources_are_read_a_batch_at_a_time() -> None:
    read: list[int] = []
    errors = ((f"s{k}", ERRORS) for k in range(150) if not read.append(k))  # type: ignore[func-returns-value]
    next(bootstrap(errors, resamples=2, seed=1))
    assert len(read) == _SOURCES


@pytest.mark.parametrize("scale", [0, 12])
def test_roots_beside_the_middle_of_two_doubles_are_rounded_to_their_side(scale: int) -> None:
    """2**54 + 2 and + 6 lie in the middle: of variances that are their squares, and one more or less."""
    for middle, even, other in ((2**54 + 2, 2**54, 2**54 + 4), (2**54 + 6, 2**54 + 8, 2**54 + 4)):
        square = (middle << scale) ** 2
        roots = [math.ldexp(_root_of_variance(0, square + more, 1, 0), -scale) for more in (-1, 0, 1)]
        assert roots == [min(even, other), even, max(even, other)]
        # of five numbers that sum to 2, with variance square + 1 / 25
        assert math.ldexp(_root_of_variance(2, 5 * square + 1, 5, 0), -scale) == max(even, other)

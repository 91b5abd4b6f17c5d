"""The draw: nested, uniform, independent of the calibration split, and of the order of its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from calibudget.keys import order_keys
from calibudget.selection.draw import draw_queues

SEEDS = range(1_000)
POOL = [f"record-{i}" for i in range(40)]
#: A true draw fails a test of this level once in 10,000; the seeds are fixed, so it never flickers.
LEVEL = 1e-4


def draw(pools: Any, quotas: Any, *, selection_seed: int) -> Any:
    """What the pools' keyed order gives."""
    queues = {label: sorted(pool, key=order_keys("selection", selection_seed, label)) for label, pool in pools.items()}
    return draw_queues(queues, quotas, selection_seed=selection_seed)


pools = st.lists(st.sampled_from([f"é{i}" for i in range(20)]), unique=True, max_size=12)


@settings(max_examples=50)
@given(pools, st.integers(0, 2**53 - 1), st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_a_larger_quota_keeps_the_smaller_ones_picks(pool: Any, seed: Any, quotas: Any) -> None:
    small, large = sorted(min(quota, len(pool)) for quota in quotas)
    picks = draw({"a": pool}, {"a": large}, selection_seed=seed).picks["a"]
    assert draw({"a": pool}, {"a": small}, selection_seed=seed).picks["a"] == picks[:small]
    assert len(set(picks)) == large
    assert set(picks) <= set(pool)


@settings(max_examples=50)
@given(pools, pools, st.integers(0, 100), st.randoms(use_true_random=False))
def test_picks_depend_on_nothing_but_the_pools_own_ids(pool: Any, other: Any, seed: Any, chance: Any) -> None:
    quota = len(pool) // 2
    alone = draw({"a": pool}, {"a": quota}, selection_seed=seed).picks["a"]
    shuffled = chance.sample(pool, len(pool))
    beside = draw({"b": other, "a": shuffled}, {"a": quota, "b": 0}, selection_seed=seed)
    assert beside.picks["a"] == alone


def inclusion_counts(quota: Any) -> Any:
    counts = dict.fromkeys(POOL, 0)
    for seed in SEEDS:
        for record_id in draw({"a": POOL}, {"a": quota}, selection_seed=seed).picks["a"]:
            counts[record_id] += 1
    return np.array(list(counts.values()))


@pytest.mark.parametrize("quota", [1, 10, 33])
def test_every_record_is_as_likely_as_every_other(quota: int) -> None:
    counts = inclusion_counts(quota)
    share = quota / len(POOL)
    # Inclusions of one draw have covariance share * (1 - share) * n / (n - 1) * (I - 1/n), of rank n - 1.
    spread = len(SEEDS) * share * (1 - share) * len(POOL) / (len(POOL) - 1)
    statistic = ((counts - len(SEEDS) * share) ** 2).sum() / spread
    assert LEVEL < stats.chi2.sf(statistic, len(POOL) - 1) < 1 - LEVEL


def test_the_test_of_uniformity_sees_a_draw_that_favours_one_record() -> None:
    counts = inclusion_counts(10).astype(float)
    counts[0] += 120
    spread = len(SEEDS) * 0.25 * 0.75 * len(POOL) / (len(POOL) - 1)
    assert stats.chi2.sf(((counts - 250) ** 2).sum() / spread, len(POOL) - 1) < LEVEL


def test_picks_are_independent_of_the_calibration_split() -> None:
    """Among the records that don't calibrate, those nearest to calibrating are picked as often as the farthest."""
    near = far = 0
    for seed in SEEDS:
        by_calibration = sorted(POOL, key=order_keys("calibration", seed, "a"))
        pool = by_calibration[8:]
        picks = set(draw({"a": pool}, {"a": 8}, selection_seed=seed).picks["a"])
        near += len(picks & set(pool[:16]))
        far += len(picks & set(pool[16:]))
    assert near + far == 8 * len(SEEDS)
    assert stats.binomtest(near, near + far).pvalue > LEVEL


def test_another_seed_is_another_draw() -> None:
    picks = {draw({"a": POOL}, {"a": 10}, selection_seed=seed).picks["a"] for seed in range(50)}
    assert len(picks) == 50

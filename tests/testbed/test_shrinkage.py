"""Slopes in the light of each other: closed cases, scipy's truncated normal, less error than as measured."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import truncnorm

from testbed.rivals.shrinkage import Prior, prior_of, used_slopes


@pytest.mark.slow
def test_it_lowers_the_error() -> None:
    rng = random.Random(4)  # noqa: S311
    plain = drawn = 0.0
    for _ in range(300):
        truth = [rng.gauss(0.1, 0.05) for _ in range(10)]
        sds = [rng.uniform(0.02, 0.1) for _ in truth]
        measured = [rng.gauss(slope, sd) for slope, sd in zip(truth, sds, strict=True)]
        shrunk = used_slopes(measured, sds, prior_of(measured, sds))
        plain += sum((m - t) ** 2 for m, t in zip(measured, truth, strict=True))
        drawn += sum((s - t) ** 2 for s, t in zip(shrunk, truth, strict=True))
    assert drawn < 0.75 * plain


def test_below_zero_the_posterior_is_cut_off(subtests: pytest.Subtests) -> None:
    for mean in [-0.3, -0.05, 0.0, 0.02, 0.1, 0.5]:
        with subtests.test(mean=mean):
            # The posterior of a slope at the prior's mean is normal around it, with half the variance of either.
            prior, spread = Prior(mean=mean, variance=0.02), 0.1
            sd = math.sqrt(0.02)
            used = used_slopes([mean], [sd], prior)[0]
            if mean < -2 * sd:
                assert used == 0.0
            else:
                assert used == pytest.approx(truncnorm.mean(-mean / spread, math.inf, loc=mean, scale=spread), rel=1e-5)

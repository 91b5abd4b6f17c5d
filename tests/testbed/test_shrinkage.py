"""Slopes in the light of each other: closed cases, scipy's truncated normal, less error than as measured."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import truncnorm

from testbed.rivals.shrinkage import Prior, prior_of, used_slopes


def test_what_noise_explains_leaves_no_variance() -> None:
    prior = prior_of([0.1, 0.2, 0.3], [0.2, 0.2, 0.2])
    assert prior.variance == 0.0
    assert prior.mean == pytest.approx(0.2)
    assert used_slopes([0.1, 0.2, 0.3], [0.2, 0.2, 0.2], prior) == pytest.approx([0.2, 0.2, 0.2])


def test_half_the_variance_goes_half_the_way() -> None:
    # The slopes' variance is 0.02, the noise's 0.01.
    prior = prior_of([2.0, 2.2], [0.1, 0.1])
    assert prior == Prior(mean=pytest.approx(2.1), variance=pytest.approx(0.01))  # type: ignore[arg-type]
    assert used_slopes([2.0, 2.2], [0.1, 0.1], prior) == pytest.approx([2.05, 2.15])


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

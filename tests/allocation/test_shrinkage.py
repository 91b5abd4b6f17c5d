"""Drawing slopes together: closed cases, and less error than the slopes as measured."""

import random

import pytest

from calibudget.allocation.shrinkage import Prior, drawn_to, prior_of


def test_what_noise_explains_leaves_no_variance():
    prior = prior_of([0.1, 0.2, 0.3], [0.2, 0.2, 0.2])
    assert prior.variance == 0.0
    assert prior.mean == pytest.approx(0.2)
    assert drawn_to(prior, [0.1, 0.2, 0.3], [0.2, 0.2, 0.2]) == pytest.approx([0.2, 0.2, 0.2])


def test_half_the_variance_goes_half_the_way():
    # The slopes' variance is 0.02, the noise's 0.01.
    prior = prior_of([0.0, 0.2], [0.1, 0.1])
    assert prior == Prior(mean=pytest.approx(0.1), variance=pytest.approx(0.01))
    assert drawn_to(prior, [0.0, 0.2], [0.1, 0.1]) == pytest.approx([0.05, 0.15])


def test_noisier_slopes_weigh_less_and_move_more():
    slopes, sds = [0.0, 0.4, 0.1], [0.01, 0.2, 0.01]
    prior = prior_of(slopes, sds)
    assert prior.mean < sum(slopes) / 3
    moved = [abs(after - before) for after, before in zip(drawn_to(prior, slopes, sds), slopes, strict=True)]
    assert moved[1] == max(moved)


@pytest.mark.parametrize("slopes", [[0.3], [0.3, 0.3], [0.3, 0.1]])
def test_slopes_without_noise_stay(slopes):
    assert drawn_to(prior_of(slopes, [0.0] * len(slopes)), slopes, [0.0] * len(slopes)) == slopes


def test_one_slope_is_its_own_mean():
    assert prior_of([0.3], [0.1]) == Prior(mean=0.3, variance=0.0)
    assert drawn_to(prior_of([0.3], [0.1]), [0.3], [0.1]) == [pytest.approx(0.3)]


def test_it_lowers_the_error():
    rng = random.Random(4)  # noqa: S311
    plain = drawn = 0.0
    for _ in range(300):
        truth = [rng.gauss(0.1, 0.05) for _ in range(10)]
        sds = [rng.uniform(0.02, 0.1) for _ in truth]
        measured = [rng.gauss(slope, sd) for slope, sd in zip(truth, sds, strict=True)]
        shrunk = drawn_to(prior_of(measured, sds), measured, sds)
        plain += sum((m - t) ** 2 for m, t in zip(measured, truth, strict=True))
        drawn += sum((s - t) ** 2 for s, t in zip(shrunk, truth, strict=True))
    assert drawn < 0.75 * plain

"""Transfer between sources: planted effects come back, exactly without noise and within their intervals with it."""

import itertools
import math

import numpy as np
import pytest

from calibudget.allocation import (
    MeasuredMixture,
    apportion,
    fit_curves,
    macro_run_sd,
    macro_warm_ups,
    minimise_nll,
    perturbed_mixtures,
    prediction,
    transfers,
)
from calibudget.errors import AllocationError, InputTypeError
from testbed.rivals.mixing_laws import MixingLaw, predict_mixture

LEVELS = {"bridge": 2.0, "hard": 3.0, "own": 1.0}
#: By source what a doubling of it gives to each: `bridge` lowers only others, `hard` only itself, `own` harms one.
GIVES = {
    "bridge": {"bridge": 0.0, "hard": 0.3, "own": 0.06},
    "hard": {"bridge": 0.0, "hard": 0.12, "own": 0.0},
    "own": {"bridge": -0.03, "hard": 0.0, "own": 0.09},
}
EXPOSURES = dict.fromkeys(LEVELS, (50, 100, 200))


def planted(quotas, gives=GIVES):
    """Each source's NLL when effects add up."""
    return {
        label: level - sum(gives[other][label] * math.log2(quotas[other] / 100) for other in gives)
        for label, level in LEVELS.items()
    }


def measured(exposures=EXPOSURES, records=None, noise=0.0, seed=1, run_sd=0.0):
    """Perturbed mixtures of the planted effects, with noise of each record's own in every training."""
    rng = np.random.default_rng(seed)
    counts = records or dict.fromkeys(LEVELS, 12)
    own = {label: rng.normal(0, 0.5, size) for label, size in counts.items()}
    own = {label: values - values.mean() for label, values in own.items()}
    found = []
    for quotas in perturbed_mixtures(exposures):
        nll = {
            label: (mean + own[label] + rng.normal(0, run_sd) + rng.normal(0, noise, counts[label])).tolist()
            for label, mean in planted(quotas).items()
        }
        found.append(MeasuredMixture(quotas=quotas, nll=nll))
    return found


def test_every_source_is_changed_alone():
    assert perturbed_mixtures({"b": (30, 100, 300), "a": (33, 100, 300)}) == [
        {"a": 100, "b": 100},
        {"a": 33, "b": 100},
        {"a": 300, "b": 100},
        {"a": 100, "b": 30},
        {"a": 100, "b": 300},
    ]
    assert perturbed_mixtures({"a": (8, 16), "b": (5, 10)}) == [
        {"a": 8, "b": 5},
        {"a": 16, "b": 5},
        {"a": 8, "b": 10},
    ]
    assert len(perturbed_mixtures(dict.fromkeys("abcdefgh", (20, 60, 180)))) == 17


def test_planted_effects_come_back():
    found = transfers(measured())
    for label, row in GIVES.items():
        assert found[label] == pytest.approx(row, abs=1e-9)
    fits = fit_curves(macro_warm_ups(measured()), shrink=False, require_visible=False)
    for label, row in GIVES.items():
        # three sources: a third of their sum in the macro NLL, times three
        assert fits.sources[label].raw_slope == pytest.approx(sum(row.values()), abs=1e-9)


def test_the_curves_predict_the_macro_nll_of_other_mixtures():
    fits = fit_curves(macro_warm_ups(measured()), shrink=False, require_visible=False)
    for quotas in ({"bridge": 400, "hard": 100, "own": 70}, {"bridge": 60, "hard": 777, "own": 250}):
        expected = sum(planted(quotas).values()) / 3
        assert prediction(fits, quotas).nll == pytest.approx(expected, abs=1e-9)


def test_what_a_source_gives_to_others_wins_it_budget():
    aware = fit_curves(macro_warm_ups(measured(noise=0.05)), require_visible=False)
    quotas = minimise_nll(aware.curves, 1_000)
    best = min(
        ((a, b, 1_000 - a - b) for a in range(10, 980, 10) for b in range(10, 990 - a, 10)),
        key=lambda one: sum(planted(dict(zip(LEVELS, one, strict=True))).values()),
    )
    regret = sum(planted(quotas).values()) - sum(planted(dict(zip(LEVELS, best, strict=True))).values())
    assert quotas["bridge"] > 500
    alone = apportion({label: GIVES[label][label] for label in LEVELS}, 1_000, lower=dict.fromkeys(LEVELS, 1)).quotas
    assert alone["bridge"] == 1
    assert regret < 0.05 < sum(planted(alone).values()) - sum(planted(quotas).values())


def test_a_source_that_doesnt_matter_itself_is_worth_what_it_gives():
    weights = {"bridge": 0, "hard": 2.0, "own": 1.0}
    fits = fit_curves(macro_warm_ups(measured(), weights), shrink=False, require_visible=False)
    for label, row in GIVES.items():
        worth = (2 * row["hard"] + row["own"]) / 3
        assert fits.sources[label].raw_slope == pytest.approx(3 * worth, abs=1e-9)
    quotas = {"bridge": 500, "hard": 300, "own": 200}
    nll = planted(quotas)
    assert prediction(fits, quotas).nll == pytest.approx((2 * nll["hard"] + nll["own"]) / 3, abs=1e-9)


def test_quotas_come_near_the_best_of_another_law():
    """Under the law of Li, Liu and Xing, which adds effects up otherwise."""
    laws = {
        "a": MixingLaw(floor=0.2, scale=4.0, exponent=0.4, transfer=0.0, transfer_exponent=1.0),
        "b": MixingLaw(floor=0.3, scale=8.0, exponent=0.5, transfer=0.2, transfer_exponent=0.8),
        "c": MixingLaw(floor=0.1, scale=2.0, exponent=0.2, transfer=0.05, transfer_exponent=1.0),
    }
    mixtures = [
        MeasuredMixture(quotas=q, nll={x: [laws[x].nll(q[x], sum(q.values()) - q[x])] * 12 for x in laws})
        for q in perturbed_mixtures(dict.fromkeys(laws, (60, 120, 240)))
    ]
    quotas = minimise_nll(fit_curves(macro_warm_ups(mixtures), form="power").curves, 900)
    every = ((a, b, 900 - a - b) for a, b in itertools.product(range(20, 880, 20), repeat=2) if a + b < 890)
    best = min(predict_mixture(laws, dict(zip("abc", one, strict=True))) for one in every)
    assert best <= predict_mixture(laws, quotas) < 1.001 * best < predict_mixture(laws, dict.fromkeys("abc", 300))


def test_records_and_trainings_make_slopes_differ_as_it_says():
    rng = np.random.default_rng(7)
    weights = {"bridge": 1.0, "hard": 2.0, "own": 0.5}
    spread = np.std(
        [
            3 * sum(w * rng.normal(0, 0.02) for w in weights.values()) / sum(weights.values())  # macro of one training
            for _ in range(20_000)
        ]
    )
    assert macro_run_sd(0.02, list(weights), weights) == pytest.approx(spread, rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::calibudget.allocation.CurveWarning")
def test_intervals_cover_planted_effects():
    """Splits of unequal size and effects that differ between the sources: only noise may widen an interval."""
    records = {"bridge": 40, "hard": 90, "own": 60}
    covered, widths, errors = 0, [], []
    for seed in range(120):
        fits = fit_curves(macro_warm_ups(measured(records=records, noise=0.3, seed=seed)), require_visible=False)
        for label, row in GIVES.items():
            fit, truth = fits.sources[label], sum(row.values())
            covered += fit.interval[0] <= truth <= fit.interval[1]
            widths.append(fit.slope_sd)
            errors.append(fit.raw_slope - truth)
    assert 0.9 < covered / 360 < 0.98
    assert np.mean(widths) == pytest.approx(np.std(errors), rel=0.1)


def altered(mixtures, number, **changes):
    return [
        MeasuredMixture(**{"quotas": one.quotas, "nll": one.nll, **changes}) if place == number else one
        for place, one in enumerate(mixtures)
    ]


@pytest.mark.parametrize(
    ("mixtures", "message"),
    [
        ([], "no mixtures"),
        (altered(measured(), 2, quotas={"bridge": 200, "hard": 200, "own": 100}), "mixture 2 changes 2 sources"),
        (altered(measured(), 1, quotas={"bridge": 100, "hard": 100, "own": 100}), "mixture 1 changes 0 sources"),
        (altered(measured(), 3, quotas={"bridge": 100, "hard": 100}), "the quotas of mixture 3"),
        (
            altered(measured(), 3, nll={label: [-1e308] * 12 for label in LEVELS}),
            r"mixture 3 has an NLL of size 1e\+308 of 'bridge', too large to fit a curve to",
        ),
        (altered(measured(), 3, nll={**measured()[3].nll, "own": [1.0]}), "mixture 3 has 1 NLL of 'own'"),
        (altered(measured(), 3, nll={**measured()[3].nll, "own": [math.nan] * 12}), "mixture 3 has 12 NLLs of 'own'"),
        (measured()[:5], "no mixture changes 'own'"),
    ],
)
def test_mixtures_that_show_no_transfer_are_refused(mixtures, message):
    for reader in (macro_warm_ups, transfers):
        with pytest.raises(AllocationError, match=message):
            reader(mixtures)


@pytest.mark.parametrize(
    ("exposures", "message"),
    [
        ({"a": (10, 20)}, "two sources or more, but there is 1 source"),
        ({"a": (10,), "b": (10,)}, "the exposures of 'a' are"),
        ({"a": (10, 20), "b": (20, 10)}, "the exposures of 'b' are"),
        ({"a": (10, 20), "b": (10, 20, 30)}, "the exposures of 'b' are"),
        ({"a": (0, 20), "b": (10, 20)}, "the exposures of 'a' are"),
    ],
)
def test_exposures_that_make_no_mixtures_are_refused(exposures, message):
    with pytest.raises(AllocationError, match=message):
        perturbed_mixtures(exposures)


def test_weights_are_checked():
    with pytest.raises(AllocationError, match="all weights are 0"):
        macro_warm_ups(measured(), dict.fromkeys(LEVELS, 0))
    with pytest.raises(InputTypeError, match="weight"):
        macro_warm_ups(measured(), dict.fromkeys(LEVELS, "1"))

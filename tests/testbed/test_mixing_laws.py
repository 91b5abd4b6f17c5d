"""Mixing laws with transfer: planted ones predict unseen mixtures, and their best quotas are found."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from testbed.rivals.mixing_laws import (
    MixingLaw,
    MixtureRun,
    fit_mixing_laws,
    mixing_law_quotas,
    perturbed_mixtures,
    predict_mixture,
)

LAWS = {
    "a": MixingLaw(floor=0.2, scale=4.0, exponent=0.4, transfer=0.0, transfer_exponent=1.0),
    "b": MixingLaw(floor=0.3, scale=8.0, exponent=0.5, transfer=0.2, transfer_exponent=0.8),
    "c": MixingLaw(floor=0.1, scale=2.0, exponent=0.2, transfer=0.05, transfer_exponent=1.0),
}


def run_of(quotas: Any) -> Any:
    total = sum(quotas.values())
    return MixtureRun(quotas=quotas, nll={x: LAWS[x].nll(quotas[x], total - quotas[x]) for x in quotas})


@pytest.mark.slow
def test_planted_laws_predict_other_mixtures() -> None:
    fitted = fit_mixing_laws([run_of(mixture) for mixture in perturbed_mixtures(dict.fromkeys(LAWS, (40, 120, 360)))])
    for quotas in ({"a": 400, "b": 100, "c": 100}, {"a": 250, "b": 250, "c": 250}, {"a": 60, "b": 500, "c": 240}):
        assert predict_mixture(fitted, quotas) == pytest.approx(predict_mixture(LAWS, quotas), rel=0.01)
    best, found = (mixing_law_quotas(laws, 1_200, lower=dict.fromkeys(LAWS, 50)) for laws in (LAWS, fitted))
    assert predict_mixture(LAWS, found) == pytest.approx(predict_mixture(LAWS, best), rel=2e-3)


def test_quotas_are_the_best_there_are() -> None:
    lower, upper = {"a": 5, "b": 0, "c": 2}, {"a": 30, "b": 25, "c": 40}
    found = mixing_law_quotas(LAWS, 50, lower=lower, upper=upper)
    every = (
        dict(zip(LAWS, quotas, strict=True))
        for quotas in itertools.product(*(range(lower[x], upper[x] + 1) for x in LAWS))
        if sum(quotas) == 50
    )
    assert predict_mixture(LAWS, found) == min(predict_mixture(LAWS, quotas) for quotas in every)

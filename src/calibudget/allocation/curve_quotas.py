"""What learning curves say of quotas: intervals of the best ones, and the macro NLL that any of them would reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibudget.allocation.curves import CurveSet
from calibudget.allocation.exact.numbers import Real
from calibudget.allocation.least_nll import minimise_nll, predict_nll
from calibudget.allocation.plan import central


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted macro NLL.

    Attributes:
        nll: the (weighted) mean over the sources, nats.
        interval: 95%, from the bootstrap of the calibration records: it doesn't hold what the curves' form, their
            extrapolation, or another held-out set add.
    """

    nll: float
    interval: tuple[float, float]


def prediction(fits: CurveSet, quotas: Mapping[str, int], *, weights: Mapping[str, Real] | None = None) -> Prediction:
    """The macro NLL that the curves predict for quotas.

    Raises:
        InputTypeError, AllocationError: as `predict_nll`.
    """
    draws = fits.replicates
    values = [predict_nll(draws.curves(number), quotas, weights=weights) for number in range(len(draws))]
    return Prediction(nll=predict_nll(fits.curves, quotas, weights=weights), interval=central(values))


def curve_intervals(
    fits: CurveSet,
    budget: int,
    *,
    lower: Mapping[str, Real] | None = None,
    upper: Mapping[str, Real] | None = None,
    weights: Mapping[str, Real] | None = None,
) -> dict[str, tuple[int, int]]:
    """95% intervals of the quotas of `minimise_nll`, over the bootstrap's curves.

    Raises:
        InputTypeError, AllocationError: as `minimise_nll`.
    """
    draws = fits.replicates
    made = [
        minimise_nll(draws.curves(number), budget, lower=lower, upper=upper, weights=weights)
        for number in range(len(draws))
    ]
    return {label: central([quotas[label] for quotas in made]) for label in draws.labels}

"""Quotas by search, for predictions in which the sources depend on each other; and curves through many runs' means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from calibudget.allocation.exact.numbers import Real, as_count, as_weight, mean_of, sum_of
from calibudget.allocation.labels import require_same_labels, sorted_labels
from calibudget.allocation.quotas import integer_bounds
from calibudget.errors import AllocationError
from testbed.rivals.curve_shapes import EXPONENTS, shape
from testbed.rivals.records import Curve, CurveForm


def search_quotas(
    predict: Callable[[Mapping[str, int]], float],
    start: Mapping[str, int],
    *,
    lower: Mapping[str, int] | None = None,
    upper: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Quotas that no exchange between two sources improves, found from a start.

    In turn the exchange that lowers the prediction most is made, at first of many units, at last of single ones. Of a
    separable convex prediction this is the minimum; of others a minimum among neighbours.

    Args:
        predict: the number to lower, for quotas of the start's sources; never NaN.
        start: quotas within the bounds; their sum is kept.
        lower: least units a source, default 0.
        upper: most units a source, default no bound.

    Raises:
        InputTypeError, AllocationError: a start that isn't within the bounds.
    """
    labels = sorted_labels(start)
    quotas = {label: as_count(start[label], "the quota", label) for label in labels}
    low, high = integer_bounds(labels, sum(quotas.values()), lower, upper, of="the start")
    least, most = dict(zip(labels, low, strict=True)), dict(zip(labels, high, strict=True))
    outside = [label for label in labels if not least[label] <= quotas[label] <= most[label]]
    if outside:
        raise AllocationError(f"the start gives {outside[0]!r} {quotas[outside[0]]:,} units, outside its bounds")
    best = predict(quotas)
    step = 1 << max(quotas.values(), default=1).bit_length()
    while step:
        trials = [
            {**quotas, giver: quotas[giver] - step, taker: quotas[taker] + step}
            for giver in labels
            for taker in labels
            if giver != taker and quotas[giver] - step >= least[giver] and quotas[taker] + step <= most[taker]
        ]
        value, number = min(((predict(trial), number) for number, trial in enumerate(trials)), default=(math.inf, 0))
        if value < best:
            best, quotas = value, trials[number]
        else:
            step //= 2
    return quotas


def fit_curves_to_means(
    points: Mapping[str, tuple[Sequence[int], Sequence[float]]], *, form: CurveForm = "log-linear"
) -> dict[str, Curve]:
    """Curves through the mean NLLs of many runs, by least squares; a curve that rises is flat.

    Args:
        points: by label the exposures, >= 1 and at least two different ones, and the mean NLL after each, nats. Runs
            of one exposure count as their mean.
        form: `power` takes the best exponent where there are three or more exposures, and log-linear where none is
            better.

    Raises:
        InputTypeError, AllocationError: points that no curve goes through.
    """
    curves = {}
    for label in sorted_labels(points):
        exposures, nlls = points[label]
        by_exposure: dict[int, list[float]] = {}
        for exposure, nll in zip(exposures, nlls, strict=True):
            by_exposure.setdefault(as_count(exposure, "an exposure", label), []).append(float(nll))
        at = tuple(sorted(by_exposure))
        if len(at) < 2 or at[0] < 1 or not all(map(math.isfinite, nlls)):
            raise AllocationError(f"{label!r} needs finite NLLs at two or more exposures from 1 on")
        means = [mean_of(by_exposure[exposure], f"the NLLs of {label!r}") for exposure in at]
        exponents = (0.0, *EXPONENTS) if form == "power" and len(at) > 2 else (0.0,)
        fitted = min((shape(at, exponent) for exponent in exponents), key=lambda one: one.misfit(means))
        slope = max(0.0, fitted.slope(means))
        curves[label] = Curve(
            exposure=at[-1], level=fitted.level(means, slope), slope=slope, exponent=fitted.exponent if slope else 0.0
        )
    return curves


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, Real] | None = None) -> float:
    """The mean of the sources' values, or the weighted mean; a value of weight 0 plays no role.

    Raises:
        InputTypeError, AllocationError: weights of other sources, negative ones, or none above 0.
    """
    if not sorted_labels(values):
        raise AllocationError("there are no values to take the mean of")
    if weights is None:
        return mean_of(list(values.values()), "the values")
    require_same_labels(values, weights, "weights", "the values")
    given = {label: as_weight(weights[label], "the weight", label) for label in values}
    worth = {label: weight for label, weight in given.items() if weight}
    if not worth:
        raise AllocationError("all weights are 0, so that nothing is to be minimised")
    weighted = [weight * values[label] for label, weight in worth.items()]
    return sum_of(weighted, "the weighted values") / sum_of(list(worth.values()), "the weights")

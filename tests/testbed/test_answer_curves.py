"""The rule for right answers, against sums done by hand and against every possible allocation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from calibudget.errors import AllocationError
from testbed.rivals.answer_curves import answer_probability, answer_quotas, fit_answer_curve
from testbed.rivals.merging import best_mixture


def curve(low: Any, high: Any, tokens: Any = (2, 3), exposures: Any = (100, 200)) -> Any:
    return fit_answer_curve(exposures, [low, high], tokens)


def test_a_fit_is_the_precision_weighted_mean_of_measurement_and_prior() -> None:
    one = curve([1.0, 1.0], [0.5, 0.5])
    seen, variance = math.log(2) / math.log(2), 2 * 0.08**2 / math.log(2) ** 2
    fall = (seen / variance + 0.35 / 0.25**2) / (1 / variance + 1 / 0.25**2)
    assert one.fall == pytest.approx(fall)
    # the law goes through the middle of both measurements
    assert math.log(float(one.nats(np.array([100 * math.sqrt(2)]))[0])) == pytest.approx(math.log(0.5) / 2)
    found = [answer_probability([x, x], (2, 3)) for x in (1.0, 0.5)]
    assert found[1] == pytest.approx((math.exp(-1.0) + math.exp(-1.5)) / 2)
    logits = [math.log(s / (1 - s)) for s in found]
    variances = [(s * (1 - s) / 2 + 0.02**2) / (s * (1 - s)) ** 2 for s in found]
    spread = sum(variances) / math.log(2) ** 2
    rise = ((logits[1] - logits[0]) / math.log(2) / spread + 1.6 / 0.36) / (1 / spread + 1 / 0.36)
    assert one.rise == pytest.approx(rise)
    tilted = np.exp(-np.array([2, 3]) * 0.5 * 2**-fall).mean()
    line = 1 / (1 + math.exp(-(one.offset + rise * math.log(400))))
    assert float(one.answers(np.array([400.0]))[0]) == pytest.approx((tilted + line) / 2)


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0])
def test_quotas_are_the_best_of_all_in_whole_steps(weight: float) -> None:
    curves = {
        "a": curve([2.0, 1.5], [1.5, 1.0]), "b": curve([0.3, 0.2], [0.1, 0.1]), "c": curve([4.0, 3.9], [3.9, 3.8]),
    }  # fmt: skip
    lower, upper = {"a": 20, "b": 10, "c": 30}, {"a": 90, "b": 60, "c": 400}

    def value(quotas: Any) -> Any:
        at = {label: np.array([float(quota)]) for label, quota in quotas.items()}
        return sum(
            weight * float(curves[k].answers(at[k])[0]) - (1 - weight) * float(curves[k].nats(at[k])[0]) for k in at
        )

    ranges = [range(lower[k], upper[k] + 1, 10) for k in curves]
    every = [dict(zip("abc", one, strict=True)) for one in itertools.product(*ranges) if sum(one) == 200]
    made = answer_quotas(curves, 200, lower=lower, upper=upper, weight=weight)
    assert sum(made.values()) == 200
    assert value(made) == pytest.approx(max(map(value, every)))


def test_what_whole_steps_leave_over_is_handed_out_within_the_bounds() -> None:
    curves = {"a": curve([2.0, 1.5], [1.5, 1.0]), "b": curve([0.3, 0.2], [0.1, 0.1])}
    lower, upper = {"a": 20, "b": 10}, {"a": 33, "b": 44}
    for budget in range(30, 78):
        made = answer_quotas(curves, budget, lower=lower, upper=upper)
        assert sum(made.values()) == budget
        assert all(lower[k] <= made[k] <= upper[k] for k in made)
    for budget in (29, 78):
        with pytest.raises(AllocationError, match=f"sum to {budget}"):
            answer_quotas(curves, budget, lower=lower, upper=upper)


def test_merging_weights_close_in_on_the_best_mixture() -> None:
    target = np.array([0.6, 0.1, 0.3])
    weights, values = best_mixture(lambda w: -float(((w - target) ** 2).sum()), 3, evaluations=40, seed=1)
    assert len(values) == 40
    assert max(values) == pytest.approx(0, abs=0.02)
    assert values[0] == pytest.approx(-float(((1 / 3 - target) ** 2).sum()))
    assert sum(weights) == pytest.approx(1)

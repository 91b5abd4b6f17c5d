"""How each policy of the testbed comes to its quotas, and what it paid for them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibudget.allocation.bootstrap import SmallCalibrationWarning
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import POLICIES
from calibudget.errors import RecipeError
from calibudget.records import Exponents
from testbed.bench import Bench, Probe
from testbed.protocol import Point, PolicyRule
from testbed.rivals.answer_curves import (
    answer_probability,
    answer_quotas,
    fit_answer_curve,
    mixed_with_equal,
)
from testbed.rivals.merging import merged_quotas

#: Rules of the first two tests that evidence refuted: their results are read, and they can't be run again.
REFUTED: Final = ("learning-curve", "slice-tuner", "mixing-law", "unimax", "limit", "chosen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A policy's quotas.

    Attributes:
        quotas: by label; they sum to the budget less what was charged.
        examples: that warm-ups trained on, times their epochs.
        seconds: that warm-ups took, measuring included.
        predicted: macro NLL that fitted curves promise, None without curves.
        notes: what the quotas were made from, for the record.
    """

    quotas: Mapping[str, int]
    examples: int = 0
    seconds: float = 0.0
    predicted: float | None = None
    notes: Mapping[str, object] = field(default_factory=dict)


def decide(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """The quotas of a policy at a seed.

    Raises:
        AllocationError: quotas that can't be made.
        RecipeError: a rule that is unknown, or was refuted and has left.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        if rule.rule in POLICIES:
            return _by_plan(bench, point, rule, seed)
        match rule.rule:
            case "answers":
                return _by_answers(bench, point, rule, seed)
            case "merging":
                return _by_merging(bench, point, rule, seed)
        if rule.rule in REFUTED:
            raise RecipeError(
                f"the rule {rule.rule!r} was refuted and has left; its results can be read, not made again"
            )
        raise RecipeError(f"the testbed knows no rule {rule.rule!r}")


def even(bench: Bench, exposure: int) -> dict[str, int]:
    """So many examples of every source."""
    return dict.fromkeys(bench.data.families, exposure)


def _by_plan(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """A policy of `calibudget allocate`, on the base model's statistics or on those after a warm-up."""
    wants = POLICIES[rule.rule].wants
    probe = bench.probe(seed, even(bench, rule.warm_up), decode=True) if wants == "statistics" else None
    paid = [] if probe is None or not rule.warm_up else [probe]
    budget = _left(point, rule, bench, paid)
    statistics = None if probe is None else bench.statistics(seed, probe)
    request = AllocationRequest(
        policy=rule.rule,
        pool_sizes=bench.pool_sizes(seed),
        statistics=statistics,
        budget=budget,
        floor=point.floor if rule.floor is None else rule.floor,
        exponents=Exponents(**rule.exponents),
        pooled=bench.pooled(seed, budget) if wants == "pooled" else None,
        signal=rule.signal,
    )
    made = plan(request, intervals=False)
    notes: dict[str, object] = {}
    if statistics is not None:
        notes["calibration"] = {
            label: {"nll": row.mean_nll, "error_rate": row.error_rate, "sd": row.bootstrap_sd}
            for label, row in statistics.sources.items()
        }
    return _decision(made.quotas, paid, notes=notes)


def _by_answers(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """Where more examples are predicted to make whole answers likelier, by two warm-ups."""
    low, high = rule.exposures
    if rule.checkpoints:
        probes = bench.checkpoints(seed, rule.exposures)
    else:
        # the smaller one decodes too, so that rules that want error rates after the same warm-up share it
        probes = [bench.probe(seed, even(bench, exposure), decode=exposure == low) for exposure in (low, high)]
    curves = {
        label: fit_answer_curve((low, high), [probe.nll[label] for probe in probes], probes[0].tokens[label])
        for label in bench.data.families
    }
    upper = bench.pool_sizes(seed)
    lower = _lower(point, rule, bench, seed, high)
    quotas = answer_quotas(curves, _left(point, rule, bench, probes), lower=lower, upper=upper, weight=rule.weight)
    if rule.with_equal:
        quotas = mixed_with_equal(quotas, rule.with_equal, lower=lower, upper=upper)
    at = {label: np.array([float(quota)]) for label, quota in quotas.items()}
    predicted = {label: float(curves[label].answers(at[label])[0]) for label in quotas}
    seen = {
        label: [round(answer_probability(probe.nll[label], probe.tokens[label]), 6) for probe in probes]
        for label in quotas
    }
    notes = {
        "answer_probability": seen,
        "predicted_answers": {label: round(value, 6) for label, value in predicted.items()},
        "fall": {label: round(curve.fall, 6) for label, curve in curves.items()},
        "rise": {label: round(curve.rise, 6) for label, curve in curves.items()},
    }
    nats = math.fsum(float(curves[label].nats(at[label])[0]) for label in quotas) / len(quotas)
    return _decision(quotas, probes, predicted=nats, notes=notes)


def _by_merging(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """Shares by the weights of the best merged model."""
    proxy = bench.merging(seed, rule, rule.exposures[0])
    lower = _lower(point, rule, bench, seed, rule.exposures[0])
    quotas = merged_quotas(proxy.weights, point.budget, lower=lower, upper=bench.pool_sizes(seed))
    notes = {"weights": dict(proxy.weights), "tried": list(proxy.found)}
    return Decision(quotas=quotas, examples=proxy.examples, seconds=proxy.seconds, notes=notes)


def _lower(point: Point, rule: PolicyRule, bench: Bench, seed: int, exposed: int) -> dict[str, int]:
    """What each source gets at least: its floor, and the examples that a warm-up has used already."""
    floor = point.floor if rule.floor is None else rule.floor
    return {label: min(max(floor, exposed), size) for label, size in bench.pool_sizes(seed).items()}


def _left(point: Point, rule: PolicyRule, bench: Bench, probes: list[Probe]) -> int:
    """The budget, less what the warm-ups trained on where that is charged: so many examples of the final training."""
    if not rule.charged:
        return point.budget
    return point.budget - math.ceil(sum(probe.examples for probe in probes) / bench.protocol.config.epochs)


def _decision(
    quotas: Mapping[str, int],
    probes: list[Probe],
    *,
    predicted: float | None = None,
    notes: Mapping[str, object],
) -> Decision:
    return Decision(
        quotas=dict(quotas),
        examples=sum(probe.examples for probe in probes),
        seconds=sum(probe.seconds for probe in probes),
        predicted=predicted,
        notes=notes,
    )

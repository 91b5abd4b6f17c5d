"""How each policy of the testbed comes to its quotas, and what it paid for them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from calibudget.allocation.plan import plan
from calibudget.allocation.policies import POLICIES
from calibudget.allocation.request import AllocationRequest
from calibudget.allocation.statistics import SmallCalibrationWarning
from calibudget.errors import AllocationError, RecipeError
from calibudget.records import Exponents
from testbed.bench import Bench, Probe
from testbed.protocol import Point, PolicyRule
from testbed.rivals.answer_curves import (
    answer_probability,
    answer_quotas,
    fit_answer_curve,
    mixed_with_equal,
)
from testbed.rivals.comparators import PowerLaw, fit_power_law, slice_tuner_round, unimax_quotas
from testbed.rivals.curves import CurveSet, CurveWarning, WarmUps, fit_curves
from testbed.rivals.least_nll import minimise_nll, predict_nll
from testbed.rivals.merging import merged_quotas
from testbed.rivals.mixing_laws import (
    MixtureRun,
    fit_mixing_laws,
    mixing_law_quotas,
    perturbed_mixtures,
    predict_mixture,
)
from testbed.rivals.records import Curve

#: By how much a mixing law's perturbed mixtures enlarge and reduce a source.
_FACTOR: Final = 3


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


def decide(bench: Bench, point: Point, rule: PolicyRule, seed: int, limit: Mapping[str, Curve] | None) -> Decision:
    """The quotas of a policy at a seed.

    Args:
        bench: measures what the policy asks for.
        point: budget and floor.
        rule: the policy.
        seed: of the cell.
        limit: the curves that finished cells of this point have shown, for `limit`.

    Raises:
        AllocationError: quotas that can't be made.
        RecipeError: an unknown rule.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        warnings.simplefilter("ignore", CurveWarning)
        if rule.rule in POLICIES and rule.rule != "learning-curve":
            return _by_plan(bench, point, rule, seed)
        match rule.rule:
            case "learning-curve":
                return _by_curves(bench, point, rule, seed)
            case "slice-tuner":
                return _by_rounds(bench, point, rule, seed)
            case "mixing-law":
                return _by_mixtures(bench, point, rule, seed)
            case "answers":
                return _by_answers(bench, point, rule, seed)
            case "merging":
                return _by_merging(bench, point, rule, seed)
            case "unimax":
                return _decision(unimax_quotas(bench.pool_sizes(seed), point.budget), [], notes={})
            case "limit" if limit is not None:
                return _least(bench, point, rule, seed, limit, [])
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


def _by_curves(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    if rule.checkpoints:
        probes = bench.checkpoints(seed, rule.exposures)
    else:
        probes = [bench.probe(seed, even(bench, exposure), decode=False) for exposure in rule.exposures]
    measured = {
        label: WarmUps(exposures=rule.exposures, nll=[probe.nll[label] for probe in probes])
        for label in bench.data.families
    }
    fits = _fit(measured, rule, seed)
    return _least(bench, point, rule, seed, fits.curves, probes, fits)


def _by_rounds(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """Slice Tuner's way: the floor is held, a part of the rest is bought by curves, the rest by better ones."""
    sizes = bench.pool_sizes(seed)
    probes = [bench.probe(seed, even(bench, exposure), decode=False) for exposure in rule.exposures]
    measured = [(even(bench, exposure), probe) for exposure, probe in zip(rule.exposures, probes, strict=True)]
    held = _lower(point, rule, bench, seed, max(rule.exposures))
    first = round((point.budget - sum(held.values())) * rule.round_share)
    more = slice_tuner_round(_laws(measured), held, first, upper=sizes)
    held = {label: held[label] + more[label] for label in held}
    probes.append(bench.probe(seed, held, decode=False))
    measured.append((held, probes[-1]))
    rest = _left(point, rule, bench, probes) - sum(held.values())
    if rest < 0:
        raise AllocationError("slice-tuner: what is charged leaves nothing of the budget for its last round")
    more = slice_tuner_round(_laws(measured), held, rest, upper=sizes)
    quotas = {label: held[label] + more[label] for label in held}
    laws = _laws(measured)
    predicted = math.fsum(laws[label].nll(quotas[label]) for label in quotas) / len(quotas)
    return _decision(quotas, probes, predicted=predicted, notes={"first_round": held})


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


def _laws(measured: Sequence[tuple[Mapping[str, int], Probe]]) -> dict[str, PowerLaw]:
    return {
        label: fit_power_law(
            [sizes[label] for sizes, _ in measured], [_mean(probe.nll[label]) for _, probe in measured]
        )
        for label in measured[0][0]
    }


def _by_mixtures(bench: Bench, point: Point, rule: PolicyRule, seed: int) -> Decision:
    """Li, Liu and Xing's way: a law with transfer, fitted to small perturbed mixtures."""
    sizes = bench.pool_sizes(seed)
    middle = rule.exposures[0]
    mixtures = perturbed_mixtures(dict.fromkeys(sizes, (middle // _FACTOR, middle, middle * _FACTOR)))
    probes = [bench.probe(seed, mixture, decode=False) for mixture in mixtures]
    runs = [
        MixtureRun(quotas=mixture, nll={label: _mean(nll) for label, nll in probe.nll.items()})
        for mixture, probe in zip(mixtures, probes, strict=True)
    ]
    laws = fit_mixing_laws(runs)
    lower = _lower(point, rule, bench, seed, max(max(mixture.values()) for mixture in mixtures))
    quotas = mixing_law_quotas(laws, _left(point, rule, bench, probes), lower=lower, upper=sizes)
    notes = {"exponents": {label: law.exponent for label, law in laws.items()}}
    return _decision(quotas, probes, predicted=predict_mixture(laws, quotas), notes=notes)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _fit(measured: Mapping[str, WarmUps], rule: PolicyRule, seed: int) -> CurveSet:
    return fit_curves(measured, form=rule.form, shrink=rule.shrink, seed=seed, require_visible=False)


def _least(
    bench: Bench,
    point: Point,
    rule: PolicyRule,
    seed: int,
    curves: Mapping[str, Curve],
    probes: list[Probe],
    fits: CurveSet | None = None,
) -> Decision:
    sizes = bench.pool_sizes(seed)
    budget = _left(point, rule, bench, probes)
    lower = _lower(point, rule, bench, seed, max(rule.exposures, default=0))
    quotas = minimise_nll(curves, budget, lower=lower, upper=sizes)
    notes = _curve_notes(fits) if fits is not None else {"slopes": {k: curve.slope for k, curve in curves.items()}}
    return _decision(quotas, probes, predicted=predict_nll(curves, quotas), notes=notes)


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


def _curve_notes(fits: CurveSet) -> dict[str, object]:
    return {
        "slopes": {label: fit.slope for label, fit in fits.sources.items()},
        "raw_slopes": {label: fit.raw_slope for label, fit in fits.sources.items()},
        "slope_sd": {label: fit.slope_sd for label, fit in fits.sources.items()},
    }

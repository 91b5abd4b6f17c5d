"""A policy's allocation with everything that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calibudget.allocation.apportionment import listed, require_same_labels
from calibudget.allocation.exact import as_count, as_ratio
from calibudget.allocation.intervals import quota_intervals
from calibudget.allocation.need import EPSILON
from calibudget.allocation.policies import Policy, policy_named
from calibudget.allocation.rule import Problem, pose
from calibudget.allocation.spread import Spread
from calibudget.allocation.worth import Evidence, Signal, Worth
from calibudget.errors import AllocationError
from calibudget.records import AllocationPlan, Exponents, SourceAllocation, Statistics, Unit

_DEFAULT_EXPONENTS = Exponents()


def plan(
    policy: str,
    *,
    pool_sizes: Mapping[str, int],
    statistics: Statistics | None = None,
    budget: int,
    floor: int = 0,
    floors: Mapping[str, int] | None = None,
    caps: Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
    exponents: Exponents = _DEFAULT_EXPONENTS,
    need_transform: str | None = None,
    groups: Mapping[str, object] | None = None,
    pooled: Mapping[str, int] | None = None,
    signal: Signal = "error_rate",
    unit: Unit = "examples",
    statistics_sha256: str | None = None,
    intervals: bool = True,
) -> AllocationPlan:
    """Allocate a budget under a named policy and keep every number on the way.

    Args:
        policy: a name of `POLICIES`.
        pool_sizes: N_k, in the unit of the budget.
        statistics: calibration statistics of the same sources; policies that read none ignore them.
        budget: B.
        floor: f; policies without a floor ignore it and record 0.
        floors: own floors of some sources, ignored with `floor`.
        caps: most units of some sources.
        weights: for `weights`: one nonnegative number a source; 0 gives a source no more than its floor.
        exponents: exponents of the utility's factors.
        need_transform: form of the need; None is the paper's.
        groups: nested groups with own floors and caps.
        pooled: for `pooled`: the quotas of the draw from all pools together; see `pooled_quotas`.
        signal: for `val-error-floor`: the error rate, or the mean error z.
        unit: what budget, floors, caps and pool sizes count.
        statistics_sha256: digest of the statistics' file, kept as evidence.
        intervals: whether to compute 95% intervals where replicate means are there.

    Returns:
        The plan; its sources stand in code-point order. A source's share and residual quota count what it gets
        above its floor quota.

    Raises:
        InputTypeError, AllocationError: numbers that no allocation satisfies, or that the policy lacks.

    Source: paper 2.2 and 2.3, table 1 and the reliability ablation; `weights` and `learning-curve` are ours.
    """
    rule = policy_named(policy)
    if rule.floor_use == "none":
        floor, floors = 0, None
    rows = None if statistics is None else statistics.sources
    _require_input(policy, rule, pool_sizes, {"statistics": rows, "weights": weights, "pooled": pooled})
    if groups is not None:
        raise AllocationError("groups aren't built yet")
    if rule.wants == "pooled" and caps:
        raise AllocationError("pooled draws from all pools together and knows no caps")
    excluded = _zero_weights(weights or {}) if rule.wants == "weights" else ()
    problem = pose(pool_sizes, budget, floor, floors=floors, caps=caps, excluded=excluded)
    evidence = _evidence(rule, problem, statistics, weights, pooled)
    evidence = replace(evidence, exponents=exponents, need_transform=need_transform, signal=signal)
    worth = rule.rule(evidence)
    extra = _solve(rule, problem, worth)
    bands = _intervals(rule, problem, evidence) if intervals and worth.from_means else None
    return AllocationPlan(
        policy=policy,
        unit=unit,
        budget=problem.budget,
        floor=as_count(floor, "the floor"),
        floors=_sorted_counts(floors),
        caps=_sorted_counts(caps),
        groups=None,
        exponents=exponents,
        need_transform=need_transform if "need" in worth.factors else None,
        epsilon=EPSILON,
        statistics_sha256=statistics_sha256 if rule.wants == "statistics" else None,
        residual_budget=problem.residual_budget,
        sources=_rows(problem, worth, extra, bands),
    )


def _require_input(
    name: str, rule: Policy, pool_sizes: Mapping[str, int], inputs: Mapping[str, Mapping[str, object] | None]
) -> None:
    """Refuse a policy whose own input is missing or speaks of other sources."""
    if rule.wants is None:
        return
    given = inputs[rule.wants]
    if given is None:
        raise AllocationError(f"the policy {name} needs {rule.wants}")
    require_same_labels(pool_sizes, given, rule.wants)


def _zero_weights(weights: Mapping[str, float]) -> list[str]:
    zero = [label for label, weight in weights.items() if not as_ratio(weight, "the weight", label)[0]]
    if weights and len(zero) == len(weights):
        raise AllocationError(f"all weights are 0: {listed(sorted(zero))}")
    return zero


def _evidence(
    rule: Policy,
    problem: Problem,
    statistics: Statistics | None,
    weights: Mapping[str, float] | None,
    pooled: Mapping[str, int] | None,
) -> Evidence:
    rows = [statistics.sources[label] for label in problem.labels] if statistics and rule.wants == "statistics" else []
    return Evidence(
        labels=problem.labels,
        pool_sizes=problem.pool_sizes,
        capacities=[size - least for size, least in zip(problem.pool_sizes, problem.floor_quotas, strict=True)],
        statistics=rows,
        mean_errors=[row.mean_error for row in rows],
        weights=[weights[label] for label in problem.labels] if weights and rule.wants == "weights" else [],
        pooled=[pooled[label] for label in problem.labels] if pooled and rule.wants == "pooled" else [],
    )


def _solve(rule: Policy, problem: Problem, worth: Worth) -> Spread:
    return problem.solve(worth.utilities, floor_is_lower=rule.floor_use == "bound")


def _intervals(rule: Policy, problem: Problem, evidence: Evidence) -> list[tuple[int, int]] | None:
    """Quotas with each replicate's means for the mean errors, everything else held fixed; None without replicates."""
    means = [row.bootstrap_means for row in evidence.statistics]
    if not means or not all(means):
        return None
    replicates = zip(*(replicates for replicates in means if replicates), strict=True)
    extra = [_solve(rule, problem, rule.rule(replace(evidence, mean_errors=m))).quotas for m in replicates]
    bands = quota_intervals(extra)
    return [(least + low, least + high) for least, (low, high) in zip(problem.floor_quotas, bands, strict=True)]


def _sorted_counts(counts: Mapping[str, int] | None) -> dict[str, int] | None:
    return None if counts is None else {label: int(counts[label]) for label in sorted(counts)}


def _rows(
    problem: Problem, worth: Worth, extra: Spread, bands: Sequence[tuple[int, int]] | None
) -> dict[str, SourceAllocation]:
    shares = extra.shares()

    def row(k: int) -> SourceAllocation:
        factors = {name: values[k] for name, values in worth.factors.items()}
        return SourceAllocation(
            pool_size=problem.pool_sizes[k],
            floor_quota=problem.floor_quotas[k],
            residual_capacity=problem.residual_capacities[k],
            need=factors.get("need"),
            availability=factors.get("availability"),
            reliability=factors.get("reliability"),
            utility=worth.utilities[k],
            share=shares[k],
            residual_quota=extra.quotas[k],
            quota=problem.floor_quotas[k] + extra.quotas[k],
            interval=bands[k] if bands else None,
        )

    return {label: row(k) for k, label in enumerate(problem.labels)}

"""What an allocation is asked for, and the plan that answers: a policy's quotas with everything they were made from.

Intervals of the quotas come from the bootstrap replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calibudget.allocation import bounds
from calibudget.allocation.exact.budget_spread import Spread
from calibudget.allocation.exact.numbers import (
    as_count,
    as_double,
    as_doubles,
    as_weight,
    count_within_doubles,
)
from calibudget.allocation.policies import Policy, policy_named
from calibudget.allocation.quotas import Problem, pose
from calibudget.allocation.source_labels import (
    listed,
    require_mapping,
    require_same_labels,
    require_text,
    sorted_labels,
)
from calibudget.allocation.utility_factors import EPSILON, Evidence, Signal, Worth
from calibudget.errors import AllocationError, InputTypeError, UnfedPolicyError
from calibudget.records import AllocationPlan, Exponents, SourceAllocation, SourceStatistics, Statistics, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRequest:
    """One allocation to be made; `plan` answers it. What a policy doesn't read is ignored.

    Attributes:
        policy: a name of `POLICIES`.
        pool_sizes: N_k, in the unit of the budget.
        budget: B.
        floor: f, a count or a portion of the budget or of each pool (see `parse_amount`); policies without a floor
            ignore it and record 0.
        floors: own floors of some sources, ignored with `floor`.
        caps: most units of some sources.
        groups: nested groups with own floors and caps, see `parse_groups`.
        statistics: calibration statistics of the same sources.
        statistics_sha256: digest of the statistics' file, kept as evidence.
        weights: for `weights`: one nonnegative number a source; 0 gives a source no more than its floor.
        pooled: for `pooled`: the quotas of the draw from all pools together; see `pooled_quotas`.
        signal: for `val-error-floor`: the error rate, or the mean error z.
        exponents: exponents of the utility's factors.
        need_transform: form of the need; None is the paper's.
        unit: what budget, floors, caps and pool sizes count.
    """

    policy: str
    pool_sizes: Mapping[str, int]
    budget: int
    floor: bounds.Amount | str = 0
    floors: Mapping[str, bounds.Amount | str] | None = None
    caps: Mapping[str, bounds.Amount | str] | None = None
    groups: Mapping[str, Any] | None = None
    statistics: Statistics | None = None
    statistics_sha256: str | None = None
    weights: Mapping[str, float] | None = None
    pooled: Mapping[str, int] | None = None
    signal: Signal = "error_rate"
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    unit: Unit = "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A policy's problem and its evidence, and the bounds in whole units as they are recorded."""

    rule: Policy
    problem: Problem
    evidence: Evidence
    floor: int
    floors: dict[str, int] | None
    caps: dict[str, int] | None

    def replicates(self) -> list[list[int]]:
        """Whole quotas under each replicate's means, shape (R, K)."""
        floors = self.problem.floor_quotas
        columns = _replicate_means(self.evidence.labels, self.evidence.statistics)
        worths = (self.rule.rule(replace(self.evidence, mean_errors=means)) for means in zip(*columns, strict=True))
        extras = (self.problem.solve(worth.utilities).quotas for worth in worths)
        return [[least + more for least, more in zip(floors, extra, strict=True)] for extra in extras]


def pose_case(request: AllocationRequest) -> Case:
    """The case that a request comes to.

    Raises:
        UnfedPolicyError: the policy lacks its input, or doesn't know a constraint.
        InputTypeError, AllocationError: numbers that no allocation satisfies.
    """
    rule = policy_named(request.policy)
    labels = sorted_labels(request.pool_sizes)
    for name in ("floors", "caps", "weights", "groups", "pooled"):
        by_label = getattr(request, name)
        if by_label is not None:
            require_mapping(by_label, name)
    if not isinstance(request.exponents, Exponents):
        raise InputTypeError(f"exponents must be Exponents, not {type(request.exponents).__name__}")
    _require_input(request, rule, labels)
    if rule.wants == "pooled" and (request.caps or request.groups):
        raise UnfedPolicyError("pooled draws from all pools together and knows neither caps nor groups")
    pools = {label: count_within_doubles(request.pool_sizes[label], "the pool size", label) for label in labels}
    budget = as_count(request.budget, "the budget")
    if not rule.has_floor:
        request = replace(request, floor=0, floors=None)
    floor, floors = _resolved_floors(request.floor, request.floors, pools, budget)
    caps = None
    if request.caps is not None:
        amounts = {
            label: bounds.parse_amount(request.caps[label], f"the cap of {label!r}")
            for label in sorted_labels(request.caps)
        }
        caps = {
            label: bounds.most_units(one, budget=budget, pool=pools.get(label, 0)) for label, one in amounts.items()
        }
    weights = _weights(request.weights) if request.weights is not None and rule.wants == "weights" else {}
    excluded = [label for label, weight in weights.items() if not weight]
    problem = pose(pools, budget, floor, floors=floors, caps=caps, excluded=excluded)
    if request.groups is not None:
        groups = bounds.parse_groups(request.groups, labels)
        problem = replace(problem, groups=bounds.resolve_groups(groups, budget=budget, pools=pools))
    return Case(
        rule=rule,
        problem=problem,
        evidence=_evidence(request, rule, problem, weights),
        floor=floor,
        floors=floors,
        caps=caps,
    )


def _resolved_floors(
    floor: bounds.Amount | str, floors: Mapping[str, bounds.Amount | str] | None, pools: Mapping[str, int], budget: int
) -> tuple[int, dict[str, int] | None]:
    """The common floor and the own floors in whole units; a common portion of the pool becomes own floors."""
    common = bounds.parse_amount(floor, "the floor")
    own: dict[str, bounds.Amount] = {}
    if isinstance(common, bounds.Portion) and common.of == "pool":
        own, common = dict.fromkeys(pools, common), 0
    for label in sorted_labels(floors or {}):
        own[label] = bounds.parse_amount((floors or {})[label], f"the floor of {label!r}")
    resolved = {label: bounds.least_units(own[label], budget=budget, pool=pools.get(label, 0)) for label in sorted(own)}
    none = floors is None and not resolved
    return bounds.least_units(common, budget=budget, pool=0), None if none else resolved


def _require_input(request: AllocationRequest, rule: Policy, labels: list[str]) -> None:
    """Refuse a policy whose own input is missing or speaks of other sources."""
    rows = None if request.statistics is None else _rows_of(request.statistics)
    if rule.wants is None:
        return
    fed = {"statistics": rows, "weights": request.weights, "pooled": request.pooled}[rule.wants]
    if fed is None:
        source = ", the counts of one draw from all pools (a run's splits give them)" if rule.wants == "pooled" else ""
        raise UnfedPolicyError(f"the policy {request.policy} needs {rule.wants}{source}")
    require_same_labels(labels, fed, rule.wants, "the pool sizes")


def _rows_of(statistics: Statistics) -> Mapping[str, SourceStatistics]:
    """The rows of statistics, refused unless they are what they are declared to be."""
    if not isinstance(statistics, Statistics):
        raise InputTypeError(f"statistics must be Statistics, not {type(statistics).__name__}")
    require_mapping(statistics.sources, "the sources of the statistics")
    for label, row in statistics.sources.items():
        if not isinstance(row, SourceStatistics):
            raise InputTypeError(f"the statistics of {label!r} must be SourceStatistics, not {type(row).__name__}")
        if not isinstance(row.bootstrap_means, Sequence | None):
            raise InputTypeError(f"bootstrap_means of {label!r} must be a sequence of numbers")
    return statistics.sources


def _replicate_means(labels: Sequence[str], rows: Sequence[SourceStatistics]) -> list[list[float]]:
    """The replicate means of each source, as many of every one, shape (K, R)."""
    columns = [
        as_doubles(row.bootstrap_means, "bootstrap_means", label) for label, row in zip(labels, rows, strict=True)
    ]
    for label, column in zip(labels, columns, strict=True):
        if len(column) != len(columns[0]):
            raise AllocationError(
                f"{labels[0]!r} has {len(columns[0]):,} bootstrap_means, but {label!r} has {len(column):,}: "
                "every source needs as many"
            )
    return columns


def _weights(weights: Mapping[str, float]) -> dict[str, float]:
    doubles = {label: as_weight(weights[label], "the weight", label) for label in sorted(weights)}
    if doubles and not any(doubles.values()):
        raise AllocationError(f"all weights are 0: {listed(list(doubles))}")
    return doubles


def _evidence(request: AllocationRequest, rule: Policy, problem: Problem, weights: Mapping[str, float]) -> Evidence:
    read = request.statistics.sources if request.statistics is not None and rule.wants == "statistics" else {}
    rows = {label: read[label] for label in problem.labels if read}
    pooled = request.pooled if rule.wants == "pooled" else None
    return Evidence(
        labels=problem.labels,
        pool_sizes=problem.pool_sizes,
        capacities=[size - least for size, least in zip(problem.pool_sizes, problem.floor_quotas, strict=True)],
        statistics=list(rows.values()),
        mean_errors=[as_double(row.mean_error, "mean_error", label) for label, row in rows.items()],
        weights=list(weights.values()),
        pooled=[] if pooled is None else [count_within_doubles(pooled[k], "pooled", k) for k in problem.labels],
        exponents=request.exponents,
        need_transform=request.need_transform,
        signal=request.signal,
    )


def plan(request: AllocationRequest, *, intervals: bool = True) -> AllocationPlan:
    """Allocate a budget under a named policy and keep every number on the way.

    Args:
        request: the policy, its budget and what it is fed and bound by.
        intervals: whether to compute 95% intervals where replicate means are there.

    Returns:
        The plan; its sources stand in code-point order, its floors, caps and groups in whole units. A source's share
        and residual quota count what it gets above its floor quota.

    Raises:
        UnfedPolicyError: the policy lacks its input, or doesn't know a constraint.
        InputTypeError, AllocationError: numbers that no allocation satisfies.

    Source: paper 2.2 and 2.3, table 1 and the reliability ablation; ours: weights.
    """
    require_text(request.unit, "the unit")
    if request.unit not in ("examples", "tokens"):
        raise AllocationError(f"the unit is {request.unit!r}, but a budget counts examples or tokens")
    case = pose_case(request)
    worth = case.rule.rule(case.evidence)
    extra = case.problem.solve(worth.utilities)
    read = case.evidence.statistics
    has_means = bool(read) and all(row.bootstrap_means is not None and len(row.bootstrap_means) for row in read)
    bands = quota_intervals(case.replicates()) if intervals and worth.from_means and has_means else None
    return AllocationPlan(
        policy=request.policy,
        unit=request.unit,
        budget=case.problem.budget,
        floor=case.floor,
        floors=case.floors,
        caps=case.caps,
        groups=bounds.plain_groups(case.problem.groups) or None,
        exponents=request.exponents,
        need_transform=request.need_transform if "need" in worth.factors else None,
        epsilon=EPSILON,
        statistics_sha256=request.statistics_sha256 if case.rule.wants == "statistics" else None,
        residual_budget=case.problem.residual_budget,
        sources=_rows(case.problem, worth, extra, bands),
    )


def _rows(
    problem: Problem, worth: Worth, extra: Spread, bands: list[tuple[int, int]] | None
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


def quota_intervals(quotas: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """[lo, hi] of each source's quota, shape (K, 2): inverted-CDF quantiles at 2.5% and 97.5% of quotas (R, K), R >= 1.

    Both are quotas that some replicate gave.
    """
    # the smallest values whose share of values at or below them reaches the quantile
    low, high = (-(-per_mille * len(quotas) // 1000) - 1 for per_mille in (25, 975))
    return [(ordered[low], ordered[high]) for ordered in map(sorted, zip(*quotas, strict=True))]

"""A policy's allocation with everything that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibudget.allocation.amounts import Amount
from calibudget.allocation.apportionment import require_text
from calibudget.allocation.cases import DEFAULT_EXPONENTS, pose_case
from calibudget.allocation.groups import plain_groups
from calibudget.allocation.intervals import quota_intervals
from calibudget.allocation.need import EPSILON
from calibudget.allocation.rule import Problem
from calibudget.allocation.spread import Spread
from calibudget.allocation.worth import Signal, Worth
from calibudget.errors import AllocationError
from calibudget.records import AllocationPlan, Curve, Exponents, SourceAllocation, Statistics, Unit


def plan(
    policy: str,
    *,
    pool_sizes: Mapping[str, int],
    statistics: Statistics | None = None,
    budget: int,
    floor: Amount | str = 0,
    floors: Mapping[str, Amount | str] | None = None,
    caps: Mapping[str, Amount | str] | None = None,
    weights: Mapping[str, float] | None = None,
    exponents: Exponents = DEFAULT_EXPONENTS,
    need_transform: str | None = None,
    groups: Mapping[str, Any] | None = None,
    pooled: Mapping[str, int] | None = None,
    curves: Mapping[str, Curve] | None = None,
    importance: Mapping[str, float] | None = None,
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
        budget: B; `floor` spends less, and the plan's budget is what its floors come to.
        floor: f, a count or a portion of the budget or of each pool (see `parse_amount`); policies without a floor
            ignore it and record 0.
        floors: own floors of some sources, ignored with `floor`.
        caps: most units of some sources.
        weights: for `weights`: one nonnegative number a source; 0 gives a source no more than its floor.
        importance: for `learning-curve` and `least-nll`: what a nat of each source is worth, >= 0; 1 by default.
        exponents: exponents of the utility's factors.
        need_transform: form of the need; None is the paper's.
        groups: nested groups with own floors and caps, see `parse_groups`.
        pooled: for `pooled`: the quotas of the draw from all pools together; see `pooled_quotas`.
        curves: for `least-nll`: the learning curve of each source; see `fit_curves`.
        signal: for `val-error-floor`: the error rate, or the mean error z.
        unit: what budget, floors, caps and pool sizes count.
        statistics_sha256: digest of the statistics' file, kept as evidence.
        intervals: whether to compute 95% intervals where replicate means are there.

    Returns:
        The plan; its sources stand in code-point order, its floors, caps and groups in whole units. A source's share
        and residual quota count what it gets above its floor quota.

    Raises:
        UnfedPolicyError: the policy lacks its input, or doesn't know a constraint.
        InputTypeError, AllocationError: numbers that no allocation satisfies.

    Source: paper 2.2 and 2.3, table 1 and the reliability ablation; ours: weights and learning curves.
    """
    require_text(unit, "the unit")
    if unit not in ("examples", "tokens"):
        raise AllocationError(f"the unit is {unit!r}, but a budget counts examples or tokens")
    case = pose_case(
        policy,
        pool_sizes=pool_sizes,
        statistics=statistics,
        budget=budget,
        floor=floor,
        floors=floors,
        caps=caps,
        weights=weights,
        exponents=exponents,
        need_transform=need_transform,
        groups=groups,
        pooled=pooled,
        curves=curves,
        importance=importance,
        signal=signal,
    )
    worth = case.rule.rule(case.evidence)
    extra = case.solve(worth)
    bands = quota_intervals(case.replicates()) if intervals and worth.from_means and case.replicable else None
    return AllocationPlan(
        policy=policy,
        unit=unit,
        budget=case.problem.budget,
        floor=case.floor,
        floors=case.floors,
        caps=case.caps,
        groups=plain_groups(case.problem.groups) or None,
        exponents=exponents,
        need_transform=need_transform if "need" in worth.factors else None,
        epsilon=EPSILON,
        statistics_sha256=statistics_sha256 if case.rule.wants == "statistics" else None,
        residual_budget=case.problem.residual_budget,
        sources=_rows(case.problem, worth, extra, bands),
    )


def replicate_quotas(policy: str, **inputs: Any) -> list[dict[str, int]]:
    """Quotas under each bootstrap replicate's means in place of the mean errors, everything else held fixed.

    Args:
        policy: a policy that allocates by the mean errors.
        inputs: as `plan` takes them, without unit, statistics_sha256 and intervals.

    Raises:
        AllocationError: as `plan`; or the policy doesn't read the mean errors, or the statistics keep no replicates.
    """
    case = pose_case(policy, **inputs)
    if not case.rule.rule(case.evidence).from_means:
        raise AllocationError(f"the policy {policy} doesn't allocate by mean errors, so replicates don't move it")
    if not case.replicable:
        raise AllocationError("the statistics keep no bootstrap means")
    return [dict(zip(case.problem.labels, quotas, strict=True)) for quotas in case.replicates()]


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

"""What would the policy do if, and how far do its quotas move with the calibration sample?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from calibudget.allocation.plan import AllocationRequest
from calibudget.allocation.policies import POLICIES
from calibudget.allocation.stability import Stability, WhatIf, stability, what_if
from calibudget.errors import AllocationError, InputError, UnfedPolicyError
from calibudget.pipeline.allocate import plan_allocation
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.statistics import statistics_of_file
from calibudget.records import Exponents, Statistics
from calibudget.store.artefacts import STATISTICS


def explore(
    request: AllocationRequest,
    pools: Pools | None,
    *,
    budgets: Sequence[int],
    floors: Sequence[int | str],
    exponents: Sequence[Exponents],
) -> tuple[WhatIf, ...]:
    """The policy's quotas at every point of a grid; what the request says of budget, floor and exponents is replaced.

    Raises:
        AllocationError: no point of the grid is feasible; the first refusal is told.
    """
    points = what_if(
        request,
        budgets=budgets,
        common_floors=floors,
        exponents=exponents,
        planned=lambda point: plan_allocation(point, pools, intervals=False),
    )
    if points and all(point.quotas is None for point in points):
        raise AllocationError(f"no point of the grid can be met; the first: {points[0].refusal}")
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityAudit:
    """How far quotas move between calibration splits."""

    splits: int
    policies: Mapping[str, Stability]

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget stability`."""
        return {"schema": "calibudget.stability/1", **asdict(self)}


def audit(
    measured: Sequence[Statistics],
    request: AllocationRequest,
    *,
    policies: Sequence[str] = (),
    max_repeats: int = 1,
) -> StabilityAudit:
    """The paper's stability audit (3.4), policy by policy.

    The splits were drawn independently from the same sources. The request says everything but policy, pool sizes and
    statistics; without policies those are audited that need statistics and that these can feed.

    Raises:
        InputError: other sources in one of the splits, fewer than two splits, or an allocation that can't be met.
    """
    if len(measured) < 2:
        raise InputError("stability compares at least two calibration splits")
    scored = [name for name, rule in POLICIES.items() if rule.needs_scores]
    quotas = {}
    for name in policies or scored:
        with nullcontext() if policies else suppress(UnfedPolicyError):
            quotas[name] = [_quotas(request, name, statistics, max_repeats) for statistics in measured]
    return StabilityAudit(
        splits=len(measured), policies={name: stability(allocations) for name, allocations in quotas.items()}
    )


def read_measured(
    path: Path, *, pool_sizes: Mapping[str, int] | None, resamples: int, bootstrap_seed: int
) -> Statistics:
    """The statistics of a calibration split, from a `statistics.json` or from a scores file.

    Raises:
        InputError: a scores file without pool sizes.
    """
    if path.suffix == ".json":
        return STATISTICS.read(path)
    if not pool_sizes:
        raise InputError(f"{path}: scores don't say how large the pools are; give --pool-sizes, or a statistics.json")
    return statistics_of_file(path, pool_sizes=dict(pool_sizes), resamples=resamples, bootstrap_seed=bootstrap_seed)


def _quotas(request: AllocationRequest, policy: str, statistics: Statistics, max_repeats: int) -> dict[str, int]:
    sizes = {label: row.pool_size * max_repeats for label, row in statistics.sources.items()}
    posed = replace(request, policy=policy, pool_sizes=sizes, statistics=statistics)
    return plan_allocation(posed, None, intervals=False).quotas

"""What an allocation is asked for: a policy, a budget, the pools, and everything that bounds or feeds the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibudget.allocation.bounds import Amount
from calibudget.allocation.utility_factors import Signal
from calibudget.records import Exponents, Statistics, Unit


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
    floor: Amount | str = 0
    floors: Mapping[str, Amount | str] | None = None
    caps: Mapping[str, Amount | str] | None = None
    groups: Mapping[str, Any] | None = None
    statistics: Statistics | None = None
    statistics_sha256: str | None = None
    weights: Mapping[str, float] | None = None
    pooled: Mapping[str, int] | None = None
    signal: Signal = "error_rate"
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    unit: Unit = "examples"

"""From files, sizes or a run directory to one plan, or to every policy's plan side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibudget.allocation import POLICIES, Signal, plan, pooled_quotas
from calibudget.keys import order_keys
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Exponents, Statistics, Unit
from calibudget.store import read_splits, read_statistics, statistics_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInputs:
    """Everything that any policy may ask for; what isn't there is None."""

    pool_sizes: Mapping[str, int]
    budget: int
    floor: int = 0
    floors: Mapping[str, int] | None = None
    caps: Mapping[str, int] | None = None
    statistics: Statistics | None = None
    statistics_sha256: str | None = None
    weights: Mapping[str, float] | None = None
    pooled: Mapping[str, int] | None = None
    signal: Signal = "error_rate"
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    unit: Unit = "examples"


def inputs_of_recipe(
    recipe: Recipe, candidates: Mapping[str, Sequence[str]], statistics: Statistics | None
) -> AllocationInputs:
    """What a recipe's own policy is given.

    Args:
        recipe: budget, floors, caps, weights and whatever else it says of the allocation.
        candidates: record ids of every source's pool.
        statistics: the calibration statistics, None where nothing is scored.
    """
    is_pooled = recipe.policy == "pooled"
    return AllocationInputs(
        pool_sizes={label: len(ids) for label, ids in candidates.items()},
        budget=recipe.budget_total,
        floor=recipe.default_floor,
        floors=recipe.own_floors,
        caps=recipe.caps,
        statistics=statistics,
        statistics_sha256=None if statistics is None else statistics_sha256(statistics),
        weights=recipe.weights,
        pooled=pooled_draw(candidates, recipe.selection_seed, recipe.budget_total) if is_pooled else None,
        signal=recipe.signal,
        exponents=recipe.utility_exponents,
        need_transform=recipe.need_transform,
        unit=recipe.unit,
    )


def plan_allocation(policy: str, inputs: AllocationInputs, *, intervals: bool = True) -> AllocationPlan:
    """The plan of one policy."""
    fields = {name: getattr(inputs, name) for name in AllocationInputs.__slots__}
    return plan(policy, **fields, intervals=intervals)


def compare_policies(inputs: AllocationInputs) -> dict[str, AllocationPlan]:
    """The plans of all policies that these inputs can feed, in the order of `POLICIES`."""
    return {
        policy: plan_allocation(policy, inputs, intervals=False)
        for policy, rule in POLICIES.items()
        if _can_feed(inputs, policy, rule.wants)
    }


def _can_feed(inputs: AllocationInputs, policy: str, wants: str | None) -> bool:
    if policy == "learning-curve":
        return inputs.statistics is not None and all(
            row.slope is not None for row in inputs.statistics.sources.values()
        )
    if policy == "val-error-floor" and inputs.signal == "error_rate":
        return inputs.statistics is not None and all(
            row.error_rate is not None for row in inputs.statistics.sources.values()
        )
    if policy == "pooled" and inputs.caps:
        return False
    return wants is None or getattr(inputs, wants) is not None


def inputs_from_files(
    *, statistics: Path | None, sizes: Mapping[str, int] | None, splits: Path | None, **fields: object
) -> AllocationInputs:
    """Inputs whose pool sizes and signals come from a `statistics.json` or from sizes; the other fields are given.

    Args:
        statistics: a `statistics.json`, or None.
        sizes: pool sizes, where there are no statistics.
        splits: a `splits.parquet`, from whose candidates the pooled policy draws.
        fields: the other fields of `AllocationInputs`.
    """
    read = None if statistics is None else read_statistics(statistics)
    if read is not None:
        sizes = {label: row.pool_size for label, row in read.sources.items()}
    return AllocationInputs(
        pool_sizes=sizes or {},
        statistics=read,
        statistics_sha256=None if read is None else statistics_sha256(read),
        pooled=None if splits is None else pooled_from_splits(splits, int(str(fields["budget"]))),
        **fields,  # type: ignore[arg-type]
    )


def pooled_from_splits(splits: Path, budget: int) -> dict[str, int]:
    """Quotas of the pooled draw from the candidates that a `splits.parquet` lists."""
    read = read_splits(splits)
    return pooled_draw({label: ids.candidates for label, ids in read.sources.items()}, read.selection_seed, budget)


def pooled_draw(candidates: Mapping[str, Iterable[str]], selection_seed: int, budget: int) -> dict[str, int]:
    """Quotas of one draw from all candidates together, given by id (paper 3.1, pooled-uniform)."""
    keys = {label: list(map(order_keys("selection", selection_seed, label), ids)) for label, ids in candidates.items()}
    return pooled_quotas(keys, budget)

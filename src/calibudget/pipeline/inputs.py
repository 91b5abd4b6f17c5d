"""What an allocation is made from: gathered from a recipe, or from files and sizes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibudget.allocation import Amount, Signal, policy_named, pooled_quotas
from calibudget.errors import InputError
from calibudget.pipeline.bounds import bounds_of
from calibudget.pipeline.pools import Pools, listed_pools
from calibudget.recipe import Recipe
from calibudget.records import Curve, Exponents, Statistics, Unit
from calibudget.store import read_splits, read_statistics, statistics_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInputs:
    """Everything that any policy may ask for; what isn't there is None.

    `pools` are the candidates themselves, where they are known. The pooled draw is then made from them, and of a token
    budget those that are longer than their source's quota leave, so that `pool_sizes` counts the others.
    """

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
    curves: Mapping[str, Curve] | None = None
    importance: Mapping[str, float] | None = None
    signal: Signal = "error_rate"
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    unit: Unit = "examples"
    pools: Pools | None = None


def inputs_of_recipe(
    recipe: Recipe, pools: Pools, statistics: Statistics | None, curves: Mapping[str, Curve] | None = None
) -> AllocationInputs:
    """What a recipe's own policy is given.

    Floors and caps count what earlier rounds spent: a source that has its floor already needs no more of it.

    Args:
        recipe: budget, floors, caps, weights and whatever else it says of the allocation.
        pools: the candidates.
        statistics: the calibration statistics, None where nothing is scored.
        curves: learning curves, None where no warm-ups measured any.
    """
    return AllocationInputs(
        pool_sizes=pools.sizes,
        budget=recipe.budget_total,
        curves=curves,
        importance=recipe.curve_weights,
        statistics=statistics,
        statistics_sha256=None if statistics is None else statistics_sha256(statistics),
        weights=recipe.weights,
        pooled=pooled_if_asked(recipe.policy, pools, recipe.budget_total),
        signal=recipe.signal,
        exponents=recipe.utility_exponents,
        need_transform=recipe.need_transform,
        unit=recipe.unit,
        **bounds_of(recipe, pools),
    )


def fields_of(inputs: AllocationInputs) -> dict[str, Any]:
    """The inputs by name, as `allocation.plan` takes them."""
    return {name: getattr(inputs, name) for name in AllocationInputs.__slots__ if name != "pools"}


def inputs_from_files(
    *,
    statistics: Path | None,
    sizes: Mapping[str, int] | None,
    splits: Path | None,
    unit: str = "examples",
    max_repeats: int = 1,
    **fields: object,
) -> AllocationInputs:
    """Inputs whose pool sizes and signals come from files or from sizes; the other fields are given.

    Args:
        statistics: a `statistics.json`, or None. Its pool sizes count examples.
        sizes: pool sizes in the unit, where no file tells them.
        splits: a `splits.parquet`, whose candidates become `pools`; its token counts tell the sizes in tokens.
        unit: what budget, floors, caps and sizes count: "examples" or "tokens".
        max_repeats: how often each candidate may be drawn; it multiplies the pools.
        fields: the other fields of `AllocationInputs`.

    Raises:
        InputError: an unknown unit, pool sizes that nothing tells or that two things tell, or splits of other pools.
        ArtefactError: a file isn't what it should be.
    """
    if unit == "examples":
        asked, told = (statistics is None) != (not sizes), "give a STATISTICS file or --sizes label=n, one of the two"
    elif unit == "tokens":
        asked = (splits is None) != (not sizes)
        told = (
            "with --unit tokens give --sizes label=tokens or --splits FILE, one of the two; statistics count examples"
        )
    else:
        asked, told = False, f"the unit {unit!r} is unknown; a budget counts examples or tokens"
    if not asked:
        raise InputError(told)
    read = None if statistics is None else read_statistics(statistics)
    pools = None if splits is None else listed_pools(read_splits(splits), unit, max_repeats, str(splits))
    known = sizes if sizes or read is None else {label: row.pool_size for label, row in read.sources.items()}
    pool_sizes = {label: size * max_repeats for label, size in (known or {}).items()}
    if pools is not None and unit == "tokens":
        pool_sizes = pools.sizes
    elif pools is not None and pools.sizes != pool_sizes:
        differ = min(pools.sizes.items() ^ pool_sizes.items())[0]
        raise InputError(
            f"{splits}: has other pools than the rest ({differ!r}: {pools.sizes.get(differ)} there, "
            f"{pool_sizes.get(differ)} here)"
        )
    return AllocationInputs(
        pool_sizes=pool_sizes,
        statistics=read,
        statistics_sha256=None if read is None else statistics_sha256(read),
        unit="tokens" if unit == "tokens" else "examples",
        pools=pools,
        **fields,  # type: ignore[arg-type]
    )


def pooled_if_asked(policy: str, pools: Pools, budget: int) -> dict[str, int] | None:
    """The pooled draw where the policy is the one that wants it."""
    return pooled_draw(pools, budget) if policy_named(policy).wants == "pooled" else None


def pooled_draw(pools: Pools, budget: int) -> dict[str, int]:
    """Quotas of one draw from all candidates together (paper 3.1, pooled-uniform).

    Of tokens the quotas are those of the examples that fit the budget, and the rest of the budget goes to the source
    of the first that doesn't.
    """
    if pools.tokens is None:
        return pooled_quotas({label: pools.keys(label) for label in pools.queues}, budget)
    quotas, left = dict.fromkeys(pools.queues, 0), budget
    for _, label, one in heapq.merge(*(_keyed(pools, label) for label in pools.queues)):
        taken = min(pools.tokens[label][one], left)
        quotas[label] += taken
        left -= taken
    return quotas


def _keyed(pools: Pools, label: str) -> Iterator[tuple[bytes, str, str]]:
    return ((key, label, one) for key, one in zip(pools.keys(label), pools.queues[label], strict=True))

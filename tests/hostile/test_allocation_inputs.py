"""Whatever stands in for a number, a label or a mapping: an answer, or an error of ours that says what was wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.check import check_plan
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import policy_named
from calibudget.allocation.quotas import allocate, apportion
from calibudget.allocation.stability import stability, what_if
from calibudget.allocation.utility_factors import needs, utilities
from calibudget.errors import CalibudgetError
from calibudget.records import AllocationPlan, Bootstrap, Exponents, SourceStatistics, Statistics
from calibudget.selection.draw import canonical_selected_indices_sha256

ODD: list[Any] = [
    None, True, False, 0, -1, 3, 1.0, -0.0, 0.5, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324,
    10**30, 10**400, -(10**400), 10**5000, -(10**5000), 2**53, 2**63, 2**64,
    Decimal("sNaN"), Decimal("NaN"), Decimal("Infinity"), Decimal("1e400"), Decimal("1e-400"),
    Fraction(10**5000, 3), Fraction(-(10**5000), 3), Fraction(1, 10**5000),
    np.int64(3), np.uint64(2**64 - 1), np.float32(1.5), np.float64("nan"), np.longdouble(1) / 3, np.bool_(True),
    np.array(3), np.array(1.5), np.array([1, 2]), np.array([]), np.ma.array([1, 2, 3], mask=[0, 1, 0]),  # type: ignore[arg-type]
    np.array([True, False, True]), np.array([1, 2, 3], dtype="M8[s]"), np.array([1j, 2, 3]),
    "", "x", "3", "10% of pool", "200% of budget", "\ud800", b"x", 1j, [], [1], [1, 2, 3], (), {}, {"a": 1},
    {1: 2}, {None: 1}, {("t",): 1}, set(), {1, 2, 3}, object(), lambda: 1, int,
]  # fmt: skip

POOLS = {"a": 10, "b": 20, "c": 30}
WORTH = {"a": 1.0, "b": 2.5, "c": 3.0}
ROW = SourceStatistics(
    pool_size=50, calibration_size=10, mean_nll=1.0, error_rate=0.5, mean_error=1.0, bootstrap_sd=0.1,
    bootstrap_means=(1.0, 1.1),
)  # fmt: skip
STATISTICS = Statistics(
    model={},
    error="nll+wrong",
    bootstrap=Bootstrap(resamples=2, seed=1),
    sources={k: replace(ROW, mean_error=v) for k, v in WORTH.items()},
)
GROUPS = {"g": {"sources": ["a", "b"], "floor": 2, "cap": 30}, "h": {"sources": ["c"]}}


def inside(good: Any) -> list[Any]:
    return list(_inside(good))


def _inside(good: Any) -> Iterator[Any]:
    """The odd values, and the good one with an odd value at each of its places in turn."""
    yield from ODD
    for odd in ODD:
        if isinstance(good, Mapping):
            yield {**good, "b": odd}
            yield {**good, odd if isinstance(odd, int | float | None) else "d": 1}
        elif isinstance(good, list):
            yield [good[0], odd, *good[2:]]


def changed(good: Any) -> Iterator[Any]:
    """Records with an odd value in each field in turn."""
    for field in fields(good):
        for odd in ODD:
            yield replace(good, **{field.name: odd})


def odd_statistics() -> Iterator[Any]:
    yield from ODD
    for row in (*changed(ROW), *ODD):
        yield replace(STATISTICS, sources={**STATISTICS.sources, "b": row})
    for odd in ODD:
        yield replace(STATISTICS, sources=odd)
    for means in ((), (1.0,), (1.0, math.nan), (1.0, None), (1e308, 1e308), (-1.0, 0.0), ("a", "b")):
        yield replace(STATISTICS, sources={**STATISTICS.sources, "b": replace(ROW, bootstrap_means=means)})  # type: ignore[arg-type]


def odd_exponents() -> Iterator[Any]:
    yield from ODD
    yield from changed(Exponents())
    for field in fields(Exponents()):
        for exponent in (1e6, -1e6, 400.0, -400.0, 1e300, 1e-300):
            yield Exponents(**{field.name: exponent})


def odd_groups() -> Iterator[Any]:
    yield from ODD
    for field in ("sources", "groups", "floor", "cap", "x"):
        for odd in ODD:
            yield {"g": {**GROUPS["g"], field: odd}, "h": GROUPS["h"]}  # type: ignore[dict-item]
    for odd in ODD:
        yield {**GROUPS, "h": odd}
    deep: dict[str, Any] = {"sources": ["a", "b", "c"]}
    deep["groups"] = {"x": deep}
    yield {"g": deep}


def planned(**fields: Any) -> AllocationPlan:
    return plan(AllocationRequest(**fields))


def tried(*, budgets: Any, common_floors: Any, exponents: Any, **fields: Any) -> Any:
    request = AllocationRequest(budget=0, **fields)
    return what_if(request, budgets=budgets, common_floors=common_floors, exponents=exponents)


PLAN = {
    "policy": ("calibudget", ODD),
    "pool_sizes": (POOLS, inside(POOLS)),
    "statistics": (STATISTICS, list(odd_statistics())),
    "budget": (12, ODD),
    "floor": (1, ODD),
    "floors": (None, inside({"b": 1})),
    "caps": (None, inside({"b": 9})),
    "weights": (WORTH, inside(WORTH)),
    "exponents": (Exponents(), list(odd_exponents())),
    "need_transform": (None, ODD),
    "groups": (None, list(odd_groups())),
    "pooled": ({"a": 3, "b": 4, "c": 5}, inside(POOLS)),
    "signal": ("z", ODD),
}
#: What the other policies read that `calibudget` doesn't.
OWN = {
    "val-error-floor": ("statistics", "signal"),
    "floor-sqrt": ("pool_sizes", "floors"),
    "proportional": ("pool_sizes",),
    "pooled": ("pooled",),
    "weights": ("weights",),
}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, Any]]]] = {
    "apportion": (
        apportion,
        {"utilities": (WORTH, inside(WORTH)), "budget": (12, ODD), "lower": (None, inside(dict.fromkeys("abc", 1))),
         "upper": (None, inside(POOLS))},
    ),
    "apportion_arrays": (
        apportion_arrays,
        {"utilities": ([1.0, 1.0, 1.0], inside([1.0, 1.0, 1.0])), "budget": (10, ODD),
         "lower": (None, inside([1, 1, 1])), "upper": (None, inside([5, 5, 5])),
         "labels": (["a", "b", "c"], inside(["a", "b", "c"]))},
    ),
    "allocate": (
        allocate,
        {"pool_sizes": (POOLS, inside(POOLS)), "utilities": (WORTH, inside(WORTH)), "budget": (12, ODD),
         "floor": (1, ODD), "floors": (None, inside({"b": 1})), "caps": (None, inside({"b": 9}))},
    ),
    "plan": (planned, {**PLAN, "unit": ("examples", ODD)}),
    **{
        f"plan {policy}": (planned, {
            **{name: (good, odd if name in own else []) for name, (good, odd) in PLAN.items()}, "policy": (policy, []),
        })
        for policy, own in OWN.items()
    },
    "what_if": (
        tried,
        {"policy": ("calibudget", ODD), "budgets": ([12], inside([12, 13])), "common_floors": ([0], inside([0, 1])),
         "exponents": ([Exponents()], [*ODD, *([one] for one in odd_exponents())]), "pool_sizes": (POOLS, ODD),
         "statistics": (STATISTICS, ODD)},
    ),
    "utilities": (
        utilities,
        {"statistics": (STATISTICS.sources, [one.sources for one in odd_statistics() if isinstance(one, Statistics)]),
         "floor": (0, ODD), "floors": (None, inside({"b": 1})), "need_exponent": (1.0, ODD),
         "availability_exponent": (0.5, ODD), "reliability_exponent": (1.0, ODD), "need_transform": (None, ODD)},
    ),
    "stability": (stability, {"allocations": ([POOLS, POOLS], [*ODD, *([POOLS, one] for one in inside(POOLS))])}),
    "needs": (needs, {"mean_errors": ([1.0, 2.0, 3.0], inside([1.0, 2.0, 3.0])), "transform": ("rank", ODD)}),
    "canonical_selected_indices_sha256": (
        canonical_selected_indices_sha256, {"indices": ([1, 2], [*ODD, *([one] for one in ODD), np.array(["x"])])}
    ),
    "policy_named": (policy_named, {"name": ("need", ODD)}),

}  # fmt: skip


@pytest.mark.slow
def test_odd_values_are_answered_or_refused(subtests: pytest.Subtests) -> None:
    for name in CALLS:
        with subtests.test(name=name):
            function, arguments = CALLS[name]
            good = {argument: value for argument, (value, _) in arguments.items()}
            function(**good)
            for argument, (_, odd) in arguments.items():
                for value in odd:
                    try:
                        made = function(**{**good, argument: value})
                    except CalibudgetError:
                        continue
                    if isinstance(made, AllocationPlan):
                        assert check_plan(made) == [], argument

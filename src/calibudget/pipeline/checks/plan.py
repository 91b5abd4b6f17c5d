"""Do the quotas follow from the recipe, the pools and the statistics?"""

from __future__ import annotations

import math
from collections.abc import Mapping

from calibudget.allocation import check_plan
from calibudget.pipeline.allocating import plan_recipe
from calibudget.pipeline.checks.findings import Findings, equal
from calibudget.pipeline.pools import Pools
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan, Curve, Exponents, Statistics
from calibudget.store import ALLOCATION_NAME, allocation_to_json, read_allocation

#: Powers other than square roots may differ by an ulp between platforms, and so may what is made of them.
_PLATFORM_TOLERANCE = 1e-12


def derive_plan(
    findings: Findings,
    recipe: Recipe,
    pools: Pools,
    statistics: Statistics | None,
    curves: Mapping[str, Curve] | None = None,
) -> AllocationPlan | None:
    """The plan as it follows from its inputs, compared with `allocation.json`; None where it can't be made.

    Where only a platform's rounding of powers parts the two, the stored plan is returned: its quotas are exact in
    its own utilities.
    """
    plan = findings.derive(
        ALLOCATION_NAME,
        "an allocation that recipe, pools and statistics allow",
        lambda: plan_recipe(recipe, pools, statistics, curves),
    )
    stored = _consistent_plan(findings)
    if stored is None or plan is None:
        return plan
    same = equal if recipe.utility_exponents == Exponents() else _nearly_equal
    agree = findings.compare(ALLOCATION_NAME, allocation_to_json(plan), allocation_to_json(stored), same=same)
    findings.checked.append("allocation: need, availability, reliability, utilities, shares, quotas and intervals")
    return stored if agree else plan


def given_plan(findings: Findings, pools: Pools) -> AllocationPlan | None:
    """The `allocation.json` that was handed in, its numbers and its pool sizes checked; None where it can't be read."""
    stored = _consistent_plan(findings)
    if stored is not None:
        findings.derive(ALLOCATION_NAME, "an allocation of these pools", lambda: pools.of_plan(stored))
        findings.checked.append("allocation: given; its numbers follow from one another and fit the pools")
    return stored


def _consistent_plan(findings: Findings) -> AllocationPlan | None:
    stored = findings.read(ALLOCATION_NAME, read_allocation)
    for finding in [] if stored is None else check_plan(stored):
        findings.add(ALLOCATION_NAME, "", "numbers that follow from one another", finding)
    return stored


def _nearly_equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=_PLATFORM_TOLERANCE)
    return equal(expected, found)

"""Plans of every policy under floors, caps and nested groups: right where they are made, refused only where none is.

Two judges that share no code with the maker: `check_plan` re-derives a plan's numbers in fractions, and scipy's
integer programming says whether any quotas keep the bounds at all.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from calibudget.allocation.check import check_plan
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import POLICIES
from calibudget.errors import AllocationError
from calibudget.records import Bootstrap, SourceStatistics, Statistics

SPENDING = [name for name in POLICIES if name != "pooled"]


def random_group(rng: Any, sources: Any, depth: Any) -> Any:
    """A group of these sources: some its own, the others in groups within it; bounds that often can't be kept."""
    rng.shuffle(sources)
    own = sources if depth == 0 else sources[: rng.randint(0, len(sources))]
    inner, rest = {}, sources[len(own) :]  # type: ignore[var-annotated]
    while rest:
        count = rng.randint(1, len(rest))
        inner[f"g{depth}{len(inner)}"] = random_group(rng, rest[:count], depth - 1)
        rest = rest[count:]
    bounds = {"floor": rng.choice((0, rng.randint(0, 40), "10% of budget", "20% of pool"))}
    if rng.random() < 0.4:
        bounds["cap"] = rng.choice((rng.randint(0, 80), "50% of budget", "70% of pool"))
    return {"sources": own, "groups": inner, **bounds}


def random_inputs(rng: Any) -> Any:
    labels = list("abcdef")[: rng.randint(1, 6)]
    sizes = {label: rng.choice((0, 1, rng.randint(2, 30))) for label in labels}
    rows = {label: random_row(rng, size) for label, size in sizes.items()}
    inputs: dict[str, Any] = {
        "pool_sizes": sizes,
        "statistics": Statistics(model={}, error="nll+wrong", bootstrap=Bootstrap(resamples=2, seed=0), sources=rows),
        "weights": {label: rng.choice((0, 1, 0.1, rng.random())) for label in labels},
        "budget": rng.randint(0, sum(sizes.values()) + 1),
        "floor": rng.choice((0, 1, 3, "5% of budget", "25% of pool")),
    }
    if rng.random() < 0.3:
        inputs["floors"] = {label: rng.choice((0, 2, "50% of pool")) for label in labels if rng.random() < 0.5}
    if rng.random() < 0.4:
        inputs["caps"] = {label: rng.choice((5, 20, "80% of pool")) for label in labels if rng.random() < 0.5}
    if rng.random() < 0.6:
        inputs["groups"] = {"top": random_group(rng, list(labels), 2)}
        if len(labels) > 2 and rng.random() < 0.5:
            inputs["groups"] = {
                name: random_group(rng, part, 1) for name, part in (("p", labels[:2]), ("q", labels[2:]))
            }
    return inputs


def random_row(rng: Any, size: Any) -> Any:
    return SourceStatistics(
        pool_size=size,
        calibration_size=9,
        mean_nll=1.0,
        error_rate=rng.choice((0.0, 0.1, 0.5)),
        mean_error=rng.choice((0.0, 1.0, 3 * rng.random())),
        bootstrap_sd=rng.choice((0.0, rng.random())),
        bootstrap_means=(rng.random(), 1.0),
    )


def is_feasible(policy: Any, inputs: Any, bounds: Any) -> bool:
    """Whether integers keep the pools, and the whole-unit bounds that `plan` would record, with that budget as sum."""
    labels = sorted(inputs["pool_sizes"])
    floors, caps, groups = bounds
    low = [min(inputs["pool_sizes"][k], floors[k]) for k in labels]
    high = [min(inputs["pool_sizes"][k], caps.get(k, 10**9)) for k in labels]
    if policy == "weights":
        high = [
            most if inputs["weights"][k] else min(least, most) for k, least, most in zip(labels, low, high, strict=True)
        ]
    if any(least > most for least, most in zip(low, high, strict=True)):
        return False
    rows = [LinearConstraint(np.ones(len(labels)), inputs["budget"], inputs["budget"])]
    for members, floor, cap in groups:
        rows.append(
            LinearConstraint(np.array([float(k in members) for k in labels]), floor, np.inf if cap is None else cap)
        )
    ends = (np.array(low, dtype=float), np.array(high, dtype=float))
    found = milp(np.zeros(len(labels)), integrality=np.ones(len(labels)), bounds=ends, constraints=rows)
    return found.status == 0  # type: ignore[no-any-return]


def whole(amount: str, budget: Any, pool: Any, *, up: Any) -> Any:
    if isinstance(amount, int):  # type: ignore[unreachable]
        return amount  # type: ignore[unreachable]
    percent, _, of = amount.partition("% of ")
    units = int(percent) * (budget if of == "budget" else pool)
    return -(-units // 100) if up else units // 100


def bounds_of(policy: Any, inputs: Any) -> Any:
    """Floors, caps and groups in whole units, read anew."""
    budget, sizes = inputs["budget"], inputs["pool_sizes"]
    floors = dict.fromkeys(sizes, inputs["floor"]) | inputs.get("floors", {})
    if not POLICIES[policy].has_floor:
        floors = dict.fromkeys(sizes, 0)
    groups = []

    def walk(group: Any) -> Any:
        members = list(group["sources"])
        for inner in group["groups"].values():
            members += walk(inner)
        pool = sum(sizes[k] for k in members)
        cap = None if "cap" not in group else whole(group["cap"], budget, pool, up=False)
        groups.append((set(members), whole(group["floor"], budget, pool, up=True), cap))
        return members

    for group in inputs.get("groups", {}).values():
        walk(group)
    return (
        {k: whole(floor, budget, sizes[k], up=True) for k, floor in floors.items()},
        {k: whole(cap, budget, sizes[k], up=False) for k, cap in inputs.get("caps", {}).items()},
        groups,
    )


def plan_or_none(policy: Any, inputs: Any) -> Any:
    try:
        return plan(AllocationRequest(policy=policy, **inputs))
    except AllocationError:
        return None


@pytest.mark.parametrize(
    ("count", "seed"),
    [(60, 1), pytest.param(20_000, 3, marks=pytest.mark.full)],
)
def test_plans_are_right_or_impossible(count: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    made = refused = 0
    for _ in range(count):
        inputs, policy = random_inputs(rng), rng.choice(SPENDING)
        if policy == "weights" and not any(inputs["weights"].values()):
            continue
        bounds = bounds_of(policy, inputs)
        result = plan_or_none(policy, inputs)
        if result is None:
            assert not is_feasible(policy, inputs, bounds), (policy, inputs)
            refused += 1
            continue
        assert check_plan(result) == [], (policy, inputs)
        assert sum(result.quotas.values()) == inputs["budget"]
        floors, caps, groups = bounds
        for label, quota in result.quotas.items():
            size = inputs["pool_sizes"][label]
            assert min(size, floors[label]) <= quota <= min(size, caps.get(label, size)), (policy, inputs)
        for members, floor, cap in groups:
            total = sum(result.quotas[label] for label in members)
            assert floor <= total <= (total if cap is None else cap), (policy, inputs)
        made += 1
    assert min(made, refused) > count / 10

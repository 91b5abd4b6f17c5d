"""An independent judge of allocations: it shares no code with the makers and does the sums in fractions.

The makers settle sources round by round in integers; here the level is found between sorted break points, the
remainders are compared as fractions, and every recorded number is derived again from the ones it follows from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calibudget.records import AllocationPlan, SourceAllocation

# Two correct computations of a utility may differ by the rounding of a few operations.
_RELATIVE_TOLERANCE = 1e-14


def check_plan(plan: AllocationPlan) -> list[str]:
    """Every way in which a plan's numbers contradict each other or the rule, a sentence each; empty if none does.

    Checked: floor quotas, capacities, sums, factors and utilities, and that shares and quotas are the exact water
    level and its largest-remainder rounding for the recorded utilities. What can't be seen from the plan alone
    (that the need follows from the scores, say) is not.

    Source: paper 2.3 (allocation guarantee), appendix (deterministic contract).
    """
    findings = [*_sums(plan)]
    for label, row in plan.sources.items():
        findings += [f"{label}: {finding}" for finding in (*_bounds(plan, label, row), *_worth(plan, row))]
    if not findings:
        findings += _level(plan)
    return findings


def _sums(plan: AllocationPlan) -> Iterator[str]:
    rows = plan.sources.values()
    quotas = sum(row.quota for row in rows)
    if quotas != plan.budget:
        yield f"the quotas sum to {quotas}, not to the budget {plan.budget}"
    residual = plan.budget - sum(row.floor_quota for row in rows)
    if residual != plan.residual_budget:
        yield f"the floor quotas leave {residual}, not the residual budget {plan.residual_budget}"
    needs = [row.need for row in rows if row.need is not None]
    if needs and not math.isclose(mean := _mean(needs), 1):
        yield f"the needs have mean {mean}, not 1"


def _mean(values: Sequence[float]) -> float:
    """The mean, rounded once; infinite where it is more than the largest double."""
    try:
        return float(sum(map(Fraction, values)) / len(values))
    except OverflowError:
        return math.inf


def _bounds(plan: AllocationPlan, label: str, row: SourceAllocation) -> Iterator[str]:
    floor = (plan.floors or {}).get(label, plan.floor)
    most = min(row.pool_size, (plan.caps or {}).get(label, row.pool_size))
    if row.floor_quota != min(row.pool_size, floor):
        yield f"floor quota {row.floor_quota} isn't the smaller of pool {row.pool_size} and floor {floor}"
    excluded = plan.policy == "weights" and row.utility == 0
    room = 0 if excluded else most - row.floor_quota
    if row.residual_capacity != room:
        yield f"residual capacity {row.residual_capacity} isn't {room}"
    if row.quota != row.floor_quota + row.residual_quota:
        yield f"quota {row.quota} isn't floor quota {row.floor_quota} plus residual quota {row.residual_quota}"
    if not 0 <= row.residual_quota <= row.residual_capacity:
        yield f"residual quota {row.residual_quota} is outside 0 to {row.residual_capacity}"
    if row.interval and not row.floor_quota <= row.interval[0] <= row.interval[1] <= most:
        yield f"interval {list(row.interval)} is outside {row.floor_quota} to {most}"


def _worth(plan: AllocationPlan, row: SourceAllocation) -> Iterator[str]:
    if not (math.isfinite(row.utility) and row.utility >= 0):
        yield f"utility {row.utility} isn't finite and nonnegative"
        return
    available = math.sqrt(max(row.pool_size - row.floor_quota, plan.epsilon))
    if row.availability is not None and row.availability != available:
        yield f"availability {row.availability} isn't {available}"
    if row.reliability is not None and not 0 < row.reliability <= 1:
        yield f"reliability {row.reliability} is outside 0 to 1"
    expected = _expected_utility(plan, row)
    if expected is not None and not math.isclose(row.utility, expected, rel_tol=_RELATIVE_TOLERANCE):
        yield f"utility {row.utility} isn't {expected}"


def _expected_utility(plan: AllocationPlan, row: SourceAllocation) -> float | None:
    """The utility that the row's other numbers imply; None where it comes from outside the plan."""
    if plan.policy == "proportional":
        return float(row.pool_size)
    if plan.policy == "equal":
        return 1.0
    if plan.policy == "floor-sqrt":
        return row.availability
    if row.need is None:
        return None
    utility = _power(row.need, plan.exponents.need)
    if row.availability is not None:
        utility *= _power(row.availability, plan.exponents.availability)
    if row.reliability is not None:
        utility *= _power(row.reliability, plan.exponents.reliability)
    return utility


def _power(base: float, exponent: float) -> float:
    """The power, infinite where it is beyond the doubles."""
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):  # too large, or 0 to a negative power
        return math.inf


def _level(plan: AllocationPlan) -> Iterator[str]:
    """Compare shares and quotas with the water level, found anew, between groups and within them."""
    rows = plan.sources
    case = _Case(
        utilities={label: Fraction(row.utility) for label, row in rows.items()},
        capacities={label: row.residual_capacity for label, row in rows.items()},
        floors={label: row.floor_quota for label, row in rows.items()},
    )
    members: Members = plan.groups if plan.groups is not None else {label: label for label in rows}
    if sorted(_labels_in(members)) != sorted(rows):
        yield "the groups don't hold each source exactly once"
        return
    shares, rounded = _among(case, members, plan.residual_budget)
    for label, row in rows.items():
        share = float(shares[label])
        if row.share != share:
            yield f"{label}: share {row.share} isn't {share}"
        if row.residual_quota != rounded[label]:
            yield f"{label}: residual quota {row.residual_quota} isn't {rounded[label]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What decides a source's residual quota, by label; the bounds of groups count its floor quota too."""

    utilities: Mapping[str, Fraction]
    capacities: Mapping[str, int]
    floors: Mapping[str, int]


#: Sources, by their labels, and groups of the plan, by name.
Members = Mapping[str, str | Mapping[str, Any]]


def _members(group: Mapping[str, Any]) -> Members:
    return {**{label: label for label in group["sources"]}, **group["groups"]}


def _labels_in(members: Members) -> list[str]:
    lists = ([member] if isinstance(member, str) else _labels_in(_members(member)) for member in members.values())
    return [label for labels in lists for label in labels]


def _among(case: _Case, members: Members, budget: int) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Shares and quotas of all sources under these members, top-down."""
    bounds = {name: _limits(case, member) for name, member in members.items()}
    low, high = ({name: pair[side] for name, pair in bounds.items()} for side in (0, 1))
    worth = {name: _utility(case, member) for name, member in members.items()}
    shares = _clipped_shares(worth, low, high, budget)
    quotas = _largest_remainders(shares)
    for name, member in members.items():
        if not isinstance(member, str):
            inner_shares, inner_quotas = _among(case, _members(member), quotas[name])
            del shares[name], quotas[name]
            shares |= inner_shares
            quotas |= inner_quotas
    return shares, quotas


def _limits(case: _Case, member: str | Mapping[str, Any]) -> tuple[int, int]:
    if isinstance(member, str):
        return 0, case.capacities[member]
    inner = [_limits(case, each) for each in _members(member).values()]
    floors = sum(case.floors[label] for label in _labels_in(_members(member)))
    least, most = sum(low for low, _ in inner), sum(high for _, high in inner)
    cap = most if member["cap"] is None else min(most, member["cap"] - floors)
    return max(least, member["floor"] - floors), cap


def _utility(case: _Case, member: str | Mapping[str, Any]) -> Fraction:
    if isinstance(member, str):
        return case.utilities[member]
    roomy = [each for each in _members(member).values() if _limits(case, each)[0] < _limits(case, each)[1]]
    return sum((_utility(case, each) for each in roomy), Fraction(0))


def _clipped_shares(
    utilities: Mapping[str, Fraction], low: Mapping[str, int], high: Mapping[str, int], budget: int
) -> dict[str, Fraction]:
    worthy = {label: value for label, value in utilities.items() if value}
    idle = [label for label in utilities if label not in worthy]
    left = budget - sum(low[label] for label in idle)
    full = sum(high[label] for label in worthy)
    if idle and left > full:
        even = _clipped_shares(dict.fromkeys(idle, Fraction(1)), low, high, budget - full)
        return {label: even.get(label, Fraction(high[label])) for label in utilities}
    level = _level_between_breaks(worthy, low, high, left) if worthy else Fraction(0)
    return {label: _clip(level * value, low[label], high[label]) for label, value in utilities.items()}


def _level_between_breaks(
    utilities: Mapping[str, Fraction], low: Mapping[str, int], high: Mapping[str, int], budget: int
) -> Fraction:
    """The level between the two neighbouring break points whose clipped sums enclose the budget."""

    def spent(level: Fraction) -> Fraction | int:
        return sum(_clip(level * value, low[k], high[k]) for k, value in utilities.items())

    breaks = sorted({Fraction(bound[k]) / value for bound in (low, high) for k, value in utilities.items()})
    first, last = 0, len(breaks) - 1
    while first < last:
        middle = (first + last) // 2
        if spent(breaks[middle]) >= budget:
            last = middle
        else:
            first = middle + 1
    above = breaks[first]
    if first == 0:
        return above
    below = breaks[first - 1]
    before = spent(below)
    return below + (above - below) * (budget - before) / (spent(above) - before)


def _clip(value: Fraction, low: int, high: int) -> Fraction:
    return min(max(value, Fraction(low)), Fraction(high))


def _largest_remainders(shares: Mapping[str, Fraction]) -> dict[str, int]:
    whole = {label: math.floor(share) for label, share in shares.items()}
    left = round(sum(shares.values())) - sum(whole.values())
    queue = sorted(shares, key=lambda label: (whole[label] - shares[label], label))
    return {label: whole[label] + (label in queue[:left]) for label in shares}

"""The arithmetic of one quota, line by line, each line to be checked by hand (paper 2.2 and 2.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from calibudget.allocation.policies import POLICIES
from calibudget.allocation.utility_factors import EPSILON, doubled_ranks
from calibudget.errors import ArtefactError, InputError
from calibudget.messages import meant
from calibudget.records import ANSWER_CAP, AllocationPlan, SourceAllocation, SourceStatistics, Statistics
from calibudget.store.artefacts import ALLOCATION, STATISTICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line: what it makes, of which numbers, and what comes out.

    Attributes:
        formula: the numbers it is made of, six digits each; a text without digits where it is taken from a file.
        value: the number as the artefacts hold it, or as it follows from theirs.
    """

    name: str
    formula: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a source has its quota."""

    source: str
    sentence: str
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget explain`."""
        return {"schema": "calibudget.explanation/1", **asdict(self)}


def digits(value: float, places: int = 6) -> str:
    """A number for people: integers whole, others to so many significant digits, thousands parted by commas."""
    if isinstance(value, int) or abs(value) >= 10**places or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.{places}g}"


def read_evidence(run_dir: Path) -> tuple[AllocationPlan, Statistics | None]:
    """The allocation of a run directory, and the statistics that it was made of, if any."""
    if not run_dir.is_dir():
        raise ArtefactError(f"{run_dir}: is no directory; give the one that `calibudget run` wrote")
    return ALLOCATION.read(run_dir / ALLOCATION.name), STATISTICS.of(run_dir)


def explain(plan: AllocationPlan, statistics: Statistics | None, source: str) -> Explanation:
    """Why a source has its quota.

    Raises:
        InputError: there is no such source.
    """
    if source not in plan.sources:
        raise InputError(f"there is no source {source!r} in this allocation; {meant(source, plan.sources)}")
    row = plan.sources[source]
    steps = [
        *_measured(plan, statistics, source),
        *_bounds(plan, source),
        *_utility(plan, statistics, source),
        *_shared(plan, source),
        Step(
            name="quota",
            formula=f"{digits(row.floor_quota)} + {digits(row.residual_quota)}",
            value=row.quota,
        ),
    ]
    return Explanation(source=source, sentence=sentence(plan, source), steps=tuple(steps))


def _measured(plan: AllocationPlan, statistics: Statistics | None, source: str) -> Iterator[Step]:
    """Mean error and need, where the allocation says that it is made of these statistics."""
    if statistics is None or plan.statistics_sha256 is None:
        return
    row = statistics.sources[source]
    if plan.sources[source].need is None and plan.policy != "val-error-floor":
        return
    yield Step(name="mean NLL, nats", formula=f"of {row.calibration_size:,} calibration records", value=row.mean_nll)
    if row.error_rate is not None:
        yield Step(name="wrong answers", formula="of them, as a fraction", value=row.error_rate)
    if statistics.error == "nll+wrong" and row.error_rate is not None:
        yield Step(
            name="mean error m",
            formula=f"{digits(row.mean_nll)} + {digits(row.error_rate)}",
            value=row.mean_error,
        )
    if statistics.error == "nll_per_answer":
        formula = f"nats an answer, {ANSWER_CAP:g} at most"
        yield Step(name="mean error m", formula=formula, value=row.mean_error)
    need = plan.sources[source].need
    if need is not None:
        formula = _need_formula(statistics.sources, plan.need_transform, source)
        yield Step(name="need n", formula=formula, value=need)


def _need_formula(rows: Mapping[str, SourceStatistics], transform: str | None, source: str) -> str:
    errors = {label: max(row.mean_error, EPSILON) for label, row in rows.items()}
    if transform == "rank":
        ranks = dict(zip(errors, doubled_ranks(list(errors.values())), strict=True))
        return f"{digits(ranks[source] / 2)} / {digits(fmean(ranks.values()) / 2)}, ranks of m"
    if transform == "log1p":
        mean = fmean(math.log1p(error) for error in errors.values())
        return f"log(1 + {digits(errors[source])}) / {digits(mean)}, the mean of all"
    return f"{digits(errors[source])} / {digits(fmean(errors.values()))}, the mean m of all"


def _bounds(plan: AllocationPlan, source: str) -> Iterator[Step]:
    row = plan.sources[source]
    asked = (plan.floors or {}).get(source, plan.floor)
    yield Step(
        name="floor quota",
        formula=f"smaller of {digits(asked)} and {digits(row.pool_size)}, floor and pool",
        value=row.floor_quota,
    )
    cap = (plan.caps or {}).get(source)
    most, bound = (row.pool_size, "pool") if cap is None or cap >= row.pool_size else (cap, "cap")
    if row.residual_capacity == most - row.floor_quota:
        formula = f"{digits(most)} - {digits(row.floor_quota)}, {bound} less floor quota"
    else:
        formula = "none, since its weight is zero"
    yield Step(name="room above it c", formula=formula, value=row.residual_capacity)


def _utility(plan: AllocationPlan, statistics: Statistics | None, source: str) -> Iterator[Step]:
    """Availability, reliability, and the utility as their product, or as what else the policy pays for."""
    row = plan.sources[source]
    left = row.pool_size - row.floor_quota
    if row.availability is not None:
        formula = f"sqrt({digits(max(left, EPSILON))}), pool less floor quota"
        yield Step(name="availability a", formula=formula, value=row.availability)
    if row.reliability is not None and statistics is not None:
        sd = statistics.sources[source].bootstrap_sd
        yield Step(name="deviation s", formula=f"of m, drawn again {statistics.bootstrap.resamples:,} times", value=sd)
        yield Step(name="reliability r", formula=f"1 / (1 + {digits(sd)})", value=row.reliability)
    factors = [
        (value, getattr(plan.exponents, name) if POLICIES[plan.policy].factors else 1.0)
        for name in ("need", "availability", "reliability")
        if (value := getattr(row, name)) is not None
    ]
    if factors:
        product = " * ".join(digits(value) if power == 1 else f"{digits(value)}^{power:g}" for value, power in factors)
        yield Step(name="utility u", formula=product, value=row.utility)
    else:
        yield Step(name="utility u", formula=_paid_for(plan, statistics, source), value=row.utility)


def _paid_for(plan: AllocationPlan, statistics: Statistics | None, source: str) -> str:
    """What a policy without factors takes as the utility."""
    if plan.policy == "val-error-floor" and statistics is not None:
        own = statistics.sources[source]
        return "the mean error m" if plan.sources[source].utility == own.mean_error else "the fraction of wrong answers"
    named = {
        "proportional": "the pool size",
        "equal": "the same for all",
        "weights": "the weight of the recipe",
        "pooled": "its part of one draw from all pools",
    }
    return named.get(plan.policy, "as the policy has it")


def _shared(plan: AllocationPlan, source: str) -> Iterator[Step]:
    """From the residual budget to the source's part of it."""
    row = plan.sources[source]
    group, peers = _peers(plan, source)
    amount = plan.residual_budget if group is None else sum(one.residual_quota for one in peers.values())
    if group is None:
        floors = sum(one.floor_quota for one in peers.values())
        formula = f"{digits(plan.budget)} - {digits(floors)}, budget less all floor quotas"
    else:
        formula = f"what the sources of group {group} get above their floor quotas"
    yield Step(name="residual budget R", formula=formula, value=amount)
    alike = {label: one for label, one in peers.items() if (one.utility > 0) == (row.utility > 0)}
    if row.share == row.residual_capacity:
        yield Step(name="share t", formula="the whole residual capacity", value=row.share)
    elif row.share == 0:
        yield Step(name="share t", formula="nothing, since its utility is zero", value=row.share)
    else:
        yield from _level(row, alike, amount - sum(one.share for k, one in peers.items() if k not in alike))
    whole = min(math.floor(row.share), row.residual_quota)
    yield Step(
        name="residual quota",
        formula=f"{digits(whole)} + {digits(row.residual_quota - whole)}, {_rounding(peers)}",
        value=row.residual_quota,
    )


def _level(row: SourceAllocation, alike: Mapping[str, SourceAllocation], amount: float) -> Iterator[Step]:
    """The share of a source that isn't full: what the full ones leave, in proportion to the utilities."""
    full = [one for one in alike.values() if one.share == one.residual_capacity]
    open_ones = [one for one in alike.values() if one.share != one.residual_capacity]
    rest = amount - sum(one.share for one in full)
    if any(one.share for one in full):
        taken = digits(sum(one.share for one in full))
        yield Step(name="left by full sources", formula=f"{digits(amount)} - {taken}", value=rest)
    weight = row.utility or 1.0
    total = math.fsum(one.utility or 1.0 for one in open_ones)
    yield Step(name="utilities", formula=f"of the {len(open_ones):,} sources with room, together", value=total)
    yield Step(name="share t", formula=f"{digits(rest)} * {digits(weight)} / {digits(total)}", value=row.share)


def _rounding(peers: Mapping[str, SourceAllocation]) -> str:
    """How what whole parts leave over was given out."""
    wholes = {label: min(math.floor(one.share), one.residual_quota) for label, one in peers.items()}
    rounded_up = [one.share - wholes[label] for label, one in peers.items() if one.residual_quota > wholes[label]]
    return f"fractions from {min(rounded_up):.4f} get one" if rounded_up else "nothing is left over"


def _peers(plan: AllocationPlan, source: str) -> tuple[str | None, dict[str, SourceAllocation]]:
    """The sources that share with this one in one step: those of its own group, or all."""
    for path, group in plan.all_groups.items():
        if source in group["sources"]:
            return path[-1], {label: plan.sources[label] for label in group["sources"]}
    return None, dict(plan.sources)


def sentence(plan: AllocationPlan, source: str) -> str:
    """Why a source has its quota, in one sentence."""
    row = plan.sources[source]
    said = f"{source} gets {row.quota:,} of {plan.budget:,} {plan.unit}: {row.floor_quota:,} by its floor"
    if plan.residual_budget:
        part = row.residual_quota / plan.residual_budget
        said += f", and {row.residual_quota:,} ({part:.1%}) of the {plan.residual_budget:,} that all floors leave"
    why = list(_reasons(plan, source))
    return f"{said}{'; ' if why else ''}{', '.join(why)}."


def _reasons(plan: AllocationPlan, source: str) -> Iterator[str]:
    row = plan.sources[source]
    if row.residual_capacity == 0:
        yield "there is no room for more"
        return
    if row.share == row.residual_capacity:
        cap = (plan.caps or {}).get(source)
        yield "its pool is used up" if cap is None or cap >= row.pool_size else f"its cap of {cap:,} is reached"
    if row.need is not None:
        more = round(100 * (row.need - 1), 1)
        level = "that of the average" if not more else f"{abs(more):.1f}% {'above' if more > 0 else 'below'} average"
        yield f"its need is {level}"
    if row.availability is not None:
        rank = 1 + sum((one.availability or 0) > row.availability for one in plan.sources.values())
        yield f"what its floor leaves of the pool ranks {rank:,} of {len(plan.sources):,}"
    if row.reliability is not None:
        yield f"the spread of the measurement takes {1 - row.reliability:.1%} off"

"""The tables of a protocol whose endpoint is right answers, written from the numbers.

The first comparator of a claim is the primary one and is tested alone at 0.05; the others are tested by Holm, and count
only if the primary claim holds. Everything else is a description.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from calibudget.study.reporting.claims import Claim, Effects, detectable_effect, effects, judge_claims, t_interval
from testbed.analysis import Metric, PointResults, finished, spread
from testbed.figures import differences, exposures
from testbed.protocol import Protocol
from testbed.report import costs, table
from testbed.results import Results

_ALPHA: Final = 0.05
#: Claims beyond the primary one that must hold on every set for the rule to be confirmed.
NEEDED: Final = ("floor-sqrt", "pooled")
#: What is shown of a difference: the metric, its name, the factor, digits.
_SHOWN: Final[tuple[tuple[Metric, str, float, int], ...]] = (
    ("accuracy", "accuracy, points", 100, 2),
    ("probability", "answer probability, points", 100, 2),
    ("answer_nll", "nats an answer", 1, 3),
    ("nll", "nats a token", 1, 4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One claim that a policy's macro accuracy is higher.

    Attributes:
        comparator: than whose.
        difference: by seed.
        claim: as judged; Holm's adjustment is over the claims that aren't primary.
        is_primary: whether it is tested first and alone.
        holds: whether it is supported, and the primary claim too.
    """

    comparator: str
    difference: Effects
    claim: Claim
    is_primary: bool
    holds: bool


def verdicts(point: PointResults, policy: str, comparators: Sequence[str]) -> list[Verdict]:
    """A policy's claims, judged as the protocol says; empty while cells are missing."""
    if any(point.seeds(one) != list(point.point.seeds) for one in (policy, *comparators)):
        return []
    found = {other: paired(point, policy, other, "accuracy") for other in comparators}
    first, *rest = comparators
    judged = judge_claims({first: (found[first], "higher")}, alpha=_ALPHA)
    judged |= judge_claims({other: (found[other], "higher") for other in rest}, alpha=_ALPHA)
    return [
        Verdict(
            comparator=other,
            difference=found[other],
            claim=judged[other],
            is_primary=other == first,
            holds=judged[other].supported and judged[first].supported,
        )
        for other in comparators
    ]


def is_confirmed(claims: Sequence[Verdict]) -> bool:
    """Whether one set confirms the rule: its primary claim and the needed ones hold."""
    holding = {claim.comparator for claim in claims if claim.holds}
    return bool(claims) and all(claim.holds for claim in claims if claim.is_primary) and holding >= set(NEEDED)


def paired(point: PointResults, policy: str, other: str, metric: Metric) -> Effects:
    """Paired differences of a macro metric, policy minus the other, over the seeds that both have."""
    seeds = [seed for seed in point.seeds(policy) if (other, seed) in point.cells]
    macro = [point.macro(name, metric) for name in (policy, other)]
    return effects(*({seed: values[seed] for seed in seeds} for values in macro))


def answers_markdown(protocol: Protocol, results: Results) -> str:
    """All tables, point by point.

    Raises:
        StudyError: results that can't be analysed.
    """
    parts = [f"Protocol `{protocol.name}`, SHA-256 `{protocol.sha256}`."]
    for name, point in finished(protocol, results).items():
        one = point.point
        count = sum(len(each.policies) * len(each.seeds) for each in point.points)
        parts += [
            f"## {name} ({one.status})",
            f"Families `{one.half}`; budget {one.budget:,}, floor {one.floor:,}, {len(point.cells)} of {count} cells.",
            _means(point),
        ]
        for policy, comparators in protocol.claims.get(name, {}).items():
            parts += _claims(point, policy, comparators)
        parts += ["Mean quotas:\n\n" + _quotas(point), "Right answers in %, by family:\n\n" + _families(point)]
    return "\n\n".join([*parts, "## What it took", costs(results)]) + "\n"


def answers_figures(protocol: Protocol, results: Results) -> dict[str, bytes]:
    """Paired differences of accuracy, and accuracy against quota, SVG by file name."""
    made = {}
    for name, point in finished(protocol, results).items():
        for policy, comparators in protocol.claims.get(name, {}).items():
            found = [point.compare(policy, other) for other in comparators if other in point.policies]
            made[f"{name}-differences.svg"] = differences([(f"{name}: {policy}", found)], metric="accuracy")
        made[f"{name}-exposures.svg"] = exposures(point, metric="accuracy")
    return made


def _means(point: PointResults) -> str:
    rows = []
    for policy in point.policies:
        cells = [point.cells[policy, seed] for seed in point.seeds(policy)]
        row = [policy, str(len(cells))]
        for metric, _, factor, digits in _SHOWN:
            mean, sd = spread(point.macro(policy, metric))
            row.append(f"{factor * mean:.{digits}f}" + ("" if sd is None else f" ({factor * sd:.{digits}f})"))
        row += [
            f"{fmean(point.retention(policy, 'nll').values()):.3f}",
            f"{fmean(cell['warm_up_examples'] for cell in cells):,.0f}",
            f"{fmean(cell['warm_up_seconds'] for cell in cells):.1f}",
        ]
        rows.append(row)
    names = [f"{name.replace(', points', ' %')} (sd)" for _, name, _, _ in _SHOWN]
    return table(["policy", "seeds", *names, "companion NLL", "warm-up examples x epochs", "warm-up s"], rows)


def _claims(point: PointResults, policy: str, comparators: Sequence[str]) -> list[str]:
    """The claims, the other metrics, the families left out in turn, and the families as units."""
    found = verdicts(point, policy, comparators)
    head = "not judged, since not all cells of its claims are finished"
    if found:
        head = f"{'confirmed' if is_confirmed(found) else 'not confirmed'} on this set"
    comparators = [other for other in comparators if other in point.policies]
    if policy not in point.policies or not comparators:
        return [f"### {policy}: {head}"]
    return [
        f"### {policy} minus the others: {head}",
        *([_verdicts(found)] if found else []),
        "All metrics, mean and 95% over the seeds that both have (a description):\n\n" + _differences(point, policy),
        "The accuracy difference, points, without one family (* where its 95% over seeds excludes 0):\n\n"
        + _without(point, policy, comparators),
        "The accuracy difference, points, by family, and families as units (95% by Student's t over families):\n\n"
        + _units(point, policy, comparators),
    ]


def _verdicts(found: Sequence[Verdict]) -> str:
    rows = []
    for one in found:
        change, claim = one.difference, one.claim
        interval = t_interval(change)
        sd = change.sd or 0.0
        reach = detectable_effect(sd, change.seeds) if sd else None
        rows.append(
            [
                one.comparator + (" (primary)" if one.is_primary else ""),
                str(change.seeds),
                f"{100 * change.mean:+.2f} ({100 * sd:.2f})",
                "" if interval is None else _interval(interval, 100, 2),
                f"{sum(value > 0 for value in change.by_seed.values())}/{change.seeds}",
                "" if claim.p is None else f"{claim.p:.2g}",
                "" if claim.adjusted_p is None or one.is_primary else f"{claim.adjusted_p:.2g}",
                "" if reach is None else f"{100 * reach:.2f}",
                "higher" if one.holds else "lower" if claim.opposed else "not shown",
            ]
        )
    header = ["minus", "seeds", "accuracy, points (sd)", "95%", "seeds won", "p", "Holm p", "detectable at 80%"]
    return table([*header, "claim"], rows)


def _differences(point: PointResults, policy: str) -> str:
    rows = []
    for other in point.policies:
        if other == policy:
            continue
        row = [other, str(len(set(point.seeds(policy)) & set(point.seeds(other))))]
        for metric, _, factor, digits in _SHOWN:
            change = paired(point, policy, other, metric)
            interval = t_interval(change)
            reach = "" if interval is None else _interval(interval, factor, digits)
            row.append(f"{factor * change.mean:+.{digits}f} {reach}")
        rows.append(row)
    return table(["minus", "seeds", *(name for _, name, _, _ in _SHOWN)], rows)


def _by_family(point: PointResults, policy: str, other: str) -> dict[str, dict[int, float]]:
    """Accuracy differences by family and seed."""
    seeds = [seed for seed in point.seeds(policy) if (other, seed) in point.cells]
    return {
        label: {s: point.task(policy, s, label, "accuracy") - point.task(other, s, label, "accuracy") for s in seeds}
        for label in point.labels
    }


def _without(point: PointResults, policy: str, comparators: Sequence[str]) -> str:
    rows = []
    for other in comparators:
        changes = _by_family(point, policy, other)
        row = [other]
        for label in point.labels:
            rest = [changes[one] for one in point.labels if one != label]
            left = effects({s: fmean(one[s] for one in rest) for s in rest[0]}, dict.fromkeys(rest[0], 0.0))
            interval = t_interval(left)
            star = "" if interval is None or interval[0] <= 0 <= interval[1] else "*"
            row.append(f"{100 * left.mean:+.2f}{star}")
        rows.append(row)
    return table(["minus", *(f"no {label}" for label in point.labels)], rows)


def _units(point: PointResults, policy: str, comparators: Sequence[str]) -> str:
    rows = []
    for other in comparators:
        means = {label: fmean(own.values()) for label, own in _by_family(point, policy, other).items()}
        as_units = effects(dict(enumerate(means.values())), dict.fromkeys(range(len(means)), 0.0))
        interval = t_interval(as_units)
        row = [other, *(f"{100 * value:+.1f}" for value in means.values())]
        rows.append([*row, "" if interval is None else _interval(interval, 100, 1)])
    return table(["minus", *point.labels, "families as units, 95%"], rows)


def _quotas(point: PointResults) -> str:
    rows = [[policy, *(f"{quota:,.0f}" for quota in point.quotas(policy).values())] for policy in point.policies]
    return table(["policy", *point.labels], rows)


def _families(point: PointResults) -> str:
    rows = []
    for policy in point.policies:
        means: Mapping[str, float] = {
            label: fmean(point.task(policy, seed, label, "accuracy") for seed in point.seeds(policy))
            for label in point.labels
        }
        rows.append([policy, *(f"{100 * value:.0f}" for value in means.values())])
    return table(["policy", *point.labels], rows)


def _interval(value: tuple[float, float], factor: float, digits: int) -> str:
    low, high = (factor * end for end in value)
    return f"[{low:+.{digits}f}, {high:+.{digits}f}]" if math.isfinite(low) else ""

"""The testbed's results as Markdown, written from the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Final

from calibudget.study.reporting.claims import t_interval
from testbed.analysis import (
    Comparison,
    PointResults,
    claims,
    finished,
    slopes_found,
    spread,
)
from testbed.choice import choose
from testbed.families import HALVES
from testbed.figures import differences, exposures
from testbed.protocol import Protocol
from testbed.results import Results

#: The confirmatory claims of the first protocol, which names them in its comments; by the comparison's first point.
FIRST_CLAIMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "paper": {
        "calibudget": ("pooled", "proportional", "equal", "floor-sqrt", "val-error-floor"),
        "chosen": ("val-error-floor", "calibudget", "equal", "slice-tuner", "mixing-law"),
        "chosen-charged": ("val-error-floor", "calibudget", "equal", "slice-tuner", "mixing-law"),
    },
}
#: Policies that fit learning curves, with what they trained on free of charge and charged, by their names in protocols.
LEARNERS: Final = ("chosen", "chosen-charged", "learning-curve", "learning-curve-charged")
#: How near to the limit the chosen rule should come.
NEAR: Final = 0.005


def markdown(protocol: Protocol, results: Results) -> str:
    """All tables, point by point.

    Raises:
        StudyError: results that can't be analysed.
    """
    points = finished(protocol, results)
    parts = [f"Protocol `{protocol.name}`, SHA-256 `{protocol.sha256}`."]
    for name, point in points.items():
        names = " + ".join(f"{one.name} ({one.status})" for one in point.points)
        parts += [f"## {names}", _setting(point), _means(point)]
        if name == protocol.choosing:
            parts.append(_choices(protocol, results))
        parts += _claims(declared(protocol).get(name, {}), point)
        parts += [_quotas(point), _families(point)]
        if "limit" in point.policies:
            parts.append(_limit(point))
    parts += [*_needs(points), "## What it took", costs(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def figures(protocol: Protocol, results: Results) -> dict[str, bytes]:
    """The figures of the comparisons that claims are about, SVG by file name."""
    found = {}
    for name, point in finished(protocol, results).items():
        groups = []
        for policy, comparators in declared(protocol).get(name, {}).items():
            compared = [point.compare(policy, other) for other in comparators if _paired(point, policy, other)]
            if compared:
                groups.append((policy, compared))
        if groups:
            found[f"{name}-differences.svg"] = differences(groups)
        found[f"{name}-exposures.svg"] = exposures(point)
    return found


def declared(protocol: Protocol) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Policies that the confirmatory claims are about, and what each is held against."""
    return protocol.claims or FIRST_CLAIMS


def _setting(point: PointResults) -> str:
    one = point.point
    sizes = ", ".join(f"{family.name} {family.pool:,}" for family in HALVES[one.half])
    return (
        f"Half `{one.half}` (pools: {sizes}); budget {one.budget:,}, floor {one.floor:,}, "
        f"{len(point.cells)} of {sum(len(each.policies) * len(each.seeds) for each in point.points)} cells finished."
    )


def _means(point: PointResults) -> str:
    rows = []
    for policy in point.policies:
        nll, accuracy = spread(point.macro(policy, "nll")), spread(point.macro(policy, "accuracy"))
        kept = spread(point.retention(policy, "nll"))
        cells = [point.cells[policy, seed] for seed in point.seeds(policy)]
        promised = [cell["predicted"] for cell in cells if cell["predicted"] is not None]
        rows.append(
            [
                policy,
                str(len(cells)),
                _with_sd(nll, 4),
                _with_sd((100 * accuracy[0], None if accuracy[1] is None else 100 * accuracy[1]), 1),
                f"{kept[0]:.3f}",
                f"{fmean(cell['warm_up_examples'] for cell in cells):,.0f}",
                f"{fmean(cell['warm_up_seconds'] for cell in cells):.1f}",
                f"{fmean(promised):.4f}" if promised else "",
            ]
        )
    header = [
        "policy", "seeds", "macro NLL (sd)", "macro accuracy % (sd)", "companion NLL", "warm-up examples x epochs",
        "warm-up s", "predicted macro NLL",
    ]  # fmt: skip
    return table(header, rows)


def _choices(protocol: Protocol, results: Results) -> str:
    found = {name: choose(protocol, results, rule) for name, rule in protocol.policies.items() if rule.rule == "chosen"}
    return " ".join(f"`{name}` is `{choice}`." for name, choice in found.items() if choice)


def _claims(wanted: Mapping[str, tuple[str, ...]], point: PointResults) -> list[str]:
    """Confirmatory claims of a comparison, and every policy against the paper's comparator, as a description."""
    parts = []
    for policy, comparators in wanted.items():
        found = [point.compare(policy, other) for other in comparators if _paired(point, policy, other)]
        if found:
            parts += [
                f"### {policy} minus the others (confirmatory)",
                _comparisons(found, planned=len(comparators)),
                _contributions(point, policy, [one.comparator for one in found]),
                _without(point, policy, [one.comparator for one in found]),
            ]
    if "val-error-floor" in point.policies:
        rest = [p for p in point.policies if p != "val-error-floor" and _paired(point, p, "val-error-floor")]
        found = [point.compare(policy, "val-error-floor") for policy in rest]
        if found:
            parts += ["### Each policy minus val-error-floor (a description)", _comparisons(found, planned=0)]
    return parts


def _contributions(point: PointResults, policy: str, comparators: Sequence[str]) -> str:
    rows = [
        [other, *(f"{value:+.4f}" for value in point.contributions(policy, other).values())] for other in comparators
    ]
    return "What each family adds to the difference:\n\n" + table(["minus", *point.labels], rows)


def _without(point: PointResults, policy: str, comparators: Sequence[str]) -> str:
    """The differences with each family left out in turn."""
    rows = []
    for other in comparators:
        found = {label: point.without(policy, other, label) for label in point.labels}
        intervals = {label: t_interval(one) for label, one in found.items()}
        row = [f"{one.mean:+.4f}{_star(intervals[label])}" for label, one in found.items()]
        rows.append([other, *row])
    text = (
        "The difference without one family (a description, made after the fact; * where its 95% over seeds excludes 0):"
    )
    return text + "\n\n" + table(["minus", *(f"no {label}" for label in point.labels)], rows)


def _star(interval: tuple[float, float] | None) -> str:
    return "" if interval is None or interval[0] <= 0 <= interval[1] else "*"


def _comparisons(found: Sequence[Comparison], *, planned: int) -> str:
    """Differences, and verdicts where they are claims of the protocol: then `planned` is how many it declares."""
    verdicts = claims(found, planned) if planned else {}
    rows = []
    for one in found:
        row = [
            one.comparator if planned else one.policy,
            str(one.nll.seeds),
            f"{one.nll.mean:+.4f}" + ("" if one.nll.sd is None else f" ({one.nll.sd:.4f})"),
            _interval(one.interval, 4),
            _interval((one.examples.low, one.examples.high), 4),
            f"{100 * one.relative:+.2f}%",
            f"{100 * math.expm1(one.log_ratio.mean):+.1f}%",
            _interval(None if one.log_ratio_interval is None else _growth(one.log_ratio_interval), 1),
            f"{one.wins.won}/{one.wins.total}",
            f"{100 * one.accuracy.mean:+.2f}",
            _interval(None if one.accuracy_interval is None else _percent(one.accuracy_interval), 2),
            "" if one.detectable is None else f"{one.detectable:.4f}",
        ]
        if planned:
            verdict = verdicts[one.comparator]
            row += ["" if verdict.adjusted_p is None else f"{verdict.adjusted_p:.2g}", _verdict(verdict.supported, one)]
        rows.append(row)
    header = [
        "minus" if planned else "policy", "seeds", "macro NLL difference (sd)", "95% over seeds",
        "95% over seeds and records", "relative", "mean ratio of the families' NLLs", "95%",
        "families x seeds won", "accuracy difference, points", "95%",
        "detectable at 80%",
    ]  # fmt: skip
    return table(header + (["Holm p", "claim"] if planned else []), rows)


def _verdict(supported: bool, one: Comparison) -> str:
    if supported:
        return "lower"
    return "not shown" if one.interval is None or one.interval[0] <= 0 <= one.interval[1] else "higher"


def _quotas(point: PointResults) -> str:
    rows = [
        [policy, *(f"{quota:,.0f}" for quota in point.quotas(policy).values())]
        for policy in point.policies
        if point.cells
    ]
    return "Mean quotas:\n\n" + table(["policy", *point.labels], rows)


def _families(point: PointResults) -> str:
    rows = []
    for policy in point.policies:
        seeds = point.seeds(policy)
        values = []
        for label in point.labels:
            nll = fmean(point.task(policy, seed, label, "nll") for seed in seeds)
            right = fmean(point.task(policy, seed, label, "accuracy") for seed in seeds)
            values.append(f"{nll:.3f} / {100 * right:.0f}")
        rows.append([policy, *values])
    return "Held-out NLL / accuracy % by family:\n\n" + table(["policy", *point.labels], rows)


def _limit(point: PointResults) -> str:
    parts = []
    for policy in (*LEARNERS, "val-error-floor", "calibudget", "equal"):
        if _paired(point, policy, "limit"):
            one = point.compare(policy, "limit")
            near = "within" if one.relative <= NEAR else "not within"
            parts.append(f"`{policy}` is {100 * one.relative:+.2f}% from the limit ({near} {100 * NEAR:.1f}%).")
    return " ".join(parts)


def _needs(points: dict[str, PointResults]) -> list[str]:
    """What calibration saw beside what exposure gained."""
    point = next(iter(points.values()), None)
    if point is None or "calibudget" not in point.policies:
        return []
    learner = next((policy for policy in LEARNERS if policy in point.policies), None)
    found = slopes_found([point])
    seeds = point.seeds("calibudget")
    notes = [point.cells["calibudget", seed]["notes"] for seed in seeds]
    seen = [one["calibration"] for one in notes if "calibration" in one]
    if not seen:
        return []
    curves = [point.cells[learner, seed]["notes"]["slopes"] for seed in point.seeds(learner)] if learner else []
    rows = [
        [
            label,
            f"{fmean(one[label]['nll'] for one in seen):.3f}",
            f"{100 * fmean(one[label]['error_rate'] for one in seen):.0f}",
            f"{fmean(one[label]['sd'] for one in seen):.3f}",
            f"{found[label]:.3f}",
            f"{fmean(one[label] for one in curves):.3f}" if curves else "",
        ]
        for label in point.labels
    ]
    header = [
        "family", "base model's NLL", "its error rate %", "bootstrap sd", "fall per doubling, held out, all cells",
        f"fall per doubling that {learner or 'no policy'} measured",
    ]  # fmt: skip
    return ["## Need beside what exposure gains", table(header, rows)]


def costs(results: Results) -> str:
    """What trainings and measurements took, on what, and by which code."""
    runs = list(results.lines("run"))
    rows = []
    for stage in ("select", "train", "evaluate"):
        values = sorted(run["seconds"][stage] for run in runs)
        rows.append([stage, f"{median(values):.1f}", f"{values[len(values) // 10]:.1f}", f"{values[-1]:.1f}"])
    devices = Counter(cell["device"] for cell in results.lines("cell"))
    codes = Counter(cell["code"] for cell in results.lines("cell"))
    text = (
        f"{len(runs)} trainings, {len(list(results.lines('probe')))} warm-ups and base-model measurements, "
        f"{len(list(results.lines('checkpoints')))} warm-ups read at checkpoints; "
        f"devices: {', '.join(f'{name} ({count} cells)' for name, count in sorted(devices.items()))}; "
        f"code {', '.join(f'`{code[:16]}` ({count} cells)' for code, count in sorted(codes.items()))}. "
        "Seconds of one training in its own process, others running on the same card; the first ones load and compile:"
    )
    return text + "\n\n" + table(["stage", "median s", "tenth percentile s", "most s"], rows)


def _paired(point: PointResults, policy: str, other: str) -> bool:
    return any((other, seed) in point.cells for seed in point.seeds(policy))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column left and the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _with_sd(value: tuple[float, float | None], digits: int) -> str:
    mean, sd = value
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ({sd:.{digits}f})")


def _interval(value: tuple[float, float] | None, digits: int) -> str:
    return "" if value is None else f"[{value[0]:+.{digits}f}, {value[1]:+.{digits}f}]"


def _growth(value: tuple[float, float]) -> tuple[float, float]:
    return 100 * math.expm1(value[0]), 100 * math.expm1(value[1])


def _percent(value: tuple[float, float]) -> tuple[float, float]:
    return 100 * value[0], 100 * value[1]

"""The four-panel figure of a comparison (paper, Figure 2) and the overview of a run (paper, Figure 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from statistics import fmean
from typing import Any, Final

from calibudget.errors import requires
from calibudget.messages import counted
from calibudget.records import AllocationPlan, Statistics
from calibudget.study.protocol import Protocol
from calibudget.study.reporting.claims import effects
from calibudget.study.reporting.endpoint_display import UNITS, head
from calibudget.study.reporting.paired_differences import exploratory
from calibudget.study.reporting.quota_movement import shifts
from calibudget.study.reporting.results import Block
from calibudget.study.reporting.table import decimal

#: Okabe and Ito's colours, and marks that tell the same apart without them.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
#: Formats of a figure, and what must be left out of each for equal figures to be equal bytes.
FORMATS: Final = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_STYLE: Final = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "svg.hashsalt": "calibudget",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to memory in this house's style."""
    with requires("a figure", "study"):
        import matplotlib as mpl
    mpl.use("agg")
    mpl.rcParams.update(_STYLE)
    from matplotlib import pyplot

    return pyplot


def rendered(figure: Any) -> dict[str, bytes]:
    """A figure in every format, by the format's ending; the figure is closed."""
    files = {ending: encoded(figure, ending) for ending in FORMATS}
    pyplot().close(figure)
    return files


def encoded(figure: Any, ending: str) -> bytes:
    """A figure in one of the formats; it stays open."""
    buffer = BytesIO()
    figure.savefig(buffer, format=ending, metadata=FORMATS[ending])
    return buffer.getvalue()


def style(place: int) -> dict[str, str]:
    """Colour and mark of the n-th thing of its kind."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)]}


def diagnostics_figure(block: Block) -> dict[str, bytes]:
    """Paired seed effects, retention boundary, differences by task and mean quota shifts, by the format's ending."""
    plot = pyplot()
    figure, axes = plot.subplots(2, 2, figsize=(10.0, 7.6), layout="constrained")
    _seed_effects(axes[0][0], block)
    _boundary(axes[0][1], block)
    _task_differences(axes[1][0], block)
    _quota_shifts(axes[1][1], block)
    figure.suptitle(f"{block.focus} and {block.comparator}: {block.place} ({block.standing})", fontsize=11)
    return rendered(figure)


def _seed_effects(axis: Any, block: Block) -> None:
    """A mark a seed and a line at the mean, for the endpoints of the first primary endpoint's measure."""
    endpoints = block.protocol.endpoints
    measure = endpoints[block.protocol.primary[0]].measure
    names = [name for name, one in endpoints.items() if one.measure == measure]
    scale = UNITS[measure].scale
    for column, name in enumerate(names):
        found = block.paired(name)
        if found is None:
            continue
        axis.hlines(scale * found.mean, column - 0.32, column + 0.32, color="#000000", linewidth=2)
        for number, (seed, value) in enumerate(found.by_seed.items()):
            offset = (number - (found.seeds - 1) / 2) * 0.5 / max(found.seeds, 2)
            label = f"seed {seed}" if column == 0 else None
            axis.plot([column + offset], [scale * value], linestyle="none", label=label, **style(number))
    axis.axhline(0.0, color="#999999", linewidth=1)
    axis.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axis.set_ylabel(f"difference ({UNITS[measure].difference})")
    axis.set_title("(a) paired differences by seed, line at the mean")
    if len(block.seeds) <= 10:
        axis.legend(fontsize=8, frameon=False)


def boundary_endpoints(protocol: Protocol) -> tuple[str, str]:
    """What panel (b) draws against what: the paper's MathAvg and FragileAvg, else what is kept and the first claim."""
    by_panel = {one.panel: name for name, one in protocol.endpoints.items() if one.measure == "accuracy"}
    if {"MathAvg", "FragileAvg"} <= by_panel.keys():
        return by_panel["MathAvg"], by_panel["FragileAvg"]
    vertical = protocol.primary[0]
    others = [name for name in protocol.endpoints if name != vertical]
    return protocol.retention.endpoint if protocol.retention else (others or [vertical])[0], vertical


def _boundary(axis: Any, block: Block) -> None:
    """Every policy's means of two endpoints, exploratory ones hollow, and the guard on what is to be kept."""
    protocol = block.protocol
    horizontal, vertical = boundary_endpoints(protocol)
    units = [UNITS[protocol.endpoints[name].measure] for name in (horizontal, vertical)]
    own = [(block, policy, policy) for policy in block.policies]
    tried = [
        (other, policy, f"{policy} (exploratory, {counted(len(other.seeds), 'seed')})")
        for other, policy in exploratory(block)
    ]
    for number, (at, policy, label) in enumerate([*own, *tried]):
        series = [at.series(policy, name) for name in (horizontal, vertical)]
        if series[0] is None or series[1] is None:
            continue
        x, y = (unit.scale * fmean(one.values()) for unit, one in zip(units, series, strict=True) if one)
        filled = {} if at is block else {"markerfacecolor": "none"}
        axis.plot([x], [y], linestyle="none", markersize=7, label=label, **style(number), **filled)
    if protocol.retention is not None and protocol.retention.endpoint == horizontal:
        _guard(axis, block)
    axis.set_xlabel(head(horizontal, protocol.endpoints[horizontal].measure))
    axis.set_ylabel(head(vertical, protocol.endpoints[vertical].measure))
    axis.set_title(f"(b) {horizontal} against {vertical}, means")
    axis.legend(fontsize=7, frameon=False, loc="best")


def retention_bound(block: Block) -> float | None:
    """The worst mean on what is to be kept that the guard allows, in the endpoint's unit; None without one.

    It lies `may_fall` from the comparator's mean, below it or above, whichever is worse.
    """
    guard = block.protocol.retention
    series = None if guard is None else block.series(block.comparator, guard.endpoint)
    if guard is None or series is None:
        return None
    return fmean(series.values()) - block.protocol.endpoints[guard.endpoint].sign * guard.may_fall


def _guard(axis: Any, block: Block) -> None:
    """A line at the retention guard's bound, and the side on which what is to be kept is lost."""
    guard, bound = block.protocol.retention, retention_bound(block)
    if guard is None or bound is None:
        return
    endpoint = block.protocol.endpoints[guard.endpoint]
    unit, falls = UNITS[endpoint.measure], endpoint.direction == "higher"
    allowed = f"{decimal(unit.scale * guard.may_fall, unit.digits)} {unit.difference}"
    label = f"guard: {allowed} {'below' if falls else 'above'} {block.comparator}"
    at = unit.scale * bound
    axis.axvline(at, color="#555555", linewidth=1.2, linestyle="--", label=label)
    left, right = axis.get_xlim()
    axis.axvspan(left if falls else at, at if falls else right, color="#999999", alpha=0.2, linewidth=0)
    axis.set_xlim(left, right)


def _task_differences(axis: Any, block: Block) -> None:
    """Mean difference of each task's score, with a mark a seed."""
    protocol = block.protocol
    measure = protocol.endpoints[protocol.primary[0]].measure
    names = [name for name, one in protocol.endpoints.items() if one.measure == measure]
    widest = max(names, key=lambda name: len(protocol.weights(name)))
    sides = [block.task_scores(one, widest) for one in (protocol.focus, block.comparator)]
    if sides[0] is None or sides[1] is None:
        axis.set_axis_off()
        return
    scale = UNITS[measure].scale
    tasks = list(protocol.weights(widest))
    for row, task in enumerate(tasks):
        found = effects(*({seed: side[task, seed] for seed in block.seeds} for side in sides if side))
        _bar(axis, row, scale * found.mean, [scale * value for value in found.by_seed.values()])
    _rows(axis, tasks, f"difference ({UNITS[measure].difference})", f"(c) differences by task, {measure}")


def _quota_shifts(axis: Any, block: Block) -> None:
    """Mean change of each source's quota, with a mark a seed."""
    found = list(shifts(block).values())
    labels = list(found[0].by_source)
    for row, label in enumerate(labels):
        changes = [float(one.by_source[label]) for one in found]
        _bar(axis, row, fmean(changes), changes)
    unit = block.definition.unit
    _rows(axis, labels, f"quota change ({unit})", "(d) mean quota shifts")


def _bar(axis: Any, row: int, mean: float, values: Sequence[float]) -> None:
    # direction and hatch say the sign as well as the colour does
    colour, hatch = (COLOURS[0], "") if mean >= 0 else (COLOURS[1], "//")
    axis.barh(row, mean, color=colour, alpha=0.55, hatch=hatch, edgecolor="#333333", linewidth=0.5)
    axis.plot(values, [row] * len(values), linestyle="none", marker="o", markersize=3.5, color="#000000")


def _rows(axis: Any, names: Sequence[str], label: str, title: str) -> None:
    axis.axvline(0.0, color="#999999", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.set_title(title)


def overview_figure(plan: AllocationPlan, statistics: Statistics | None) -> dict[str, bytes]:
    """From pools over calibration and utility to quotas: one run at a glance, by the format's ending."""
    plot = pyplot()
    labels = list(plan.sources)
    figure, axes = plot.subplots(1, 4, figsize=(12.0, 1.6 + 0.34 * len(labels)), layout="constrained", sharey=True)
    rows = range(len(labels))
    sources = plan.sources
    axes[0].barh(rows, [max(sources[label].pool_size, 1) for label in labels], color=COLOURS[7])
    axes[0].set_xscale("log")
    _headed(axes[0], "pool", plan.unit)
    _calibration(axes[1], labels, statistics)
    utilities = {label: sources[label].utility for label in labels}
    known = {label: value for label, value in utilities.items() if value is not None}
    total = sum(known.values()) or 1.0
    axes[2].barh(rows, [100 * known.get(label, 0.0) / total for label in labels], color=COLOURS[2])
    _headed(axes[2], "utility" if known else "no utility under this policy", "% of all")
    _quotas(axes[3], plan)
    axes[0].set_yticks(rows, labels)
    axes[0].invert_yaxis()
    figure.suptitle(f"{plan.policy}: {plan.budget:,} {plan.unit}, floor {plan.floor:,}", fontsize=11)
    return rendered(figure)


def _calibration(axis: Any, labels: Sequence[str], statistics: Statistics | None) -> None:
    """Mean calibration error with the bootstrap's standard deviation."""
    if statistics is None:
        _headed(axis, "not calibrated", "")
        return
    rows = [statistics.sources[label] for label in labels]
    means, spreads = [one.mean_error for one in rows], [one.bootstrap_sd for one in rows]
    axis.errorbar(means, range(len(rows)), xerr=spreads, fmt="o", color=COLOURS[1], capsize=3, markersize=4)
    _headed(axis, "calibration error, mean and bootstrap sd", statistics.error)


def _quotas(axis: Any, plan: AllocationPlan) -> None:
    """Floor and residual quotas, with the quota's number and its interval where there is one."""
    for row, one in enumerate(plan.sources.values()):
        axis.barh(row, one.floor_quota, color=COLOURS[5], label="floor" if row == 0 else None)
        own: Mapping[str, Any] = {"left": one.floor_quota, "color": COLOURS[0], "hatch": "//", "edgecolor": "#ffffff"}
        axis.barh(row, one.quota - one.floor_quota, label="residual" if row == 0 else None, **own)
        if one.interval is not None:
            axis.plot(one.interval, [row, row], color="#000000", linewidth=1.5)
        axis.annotate(f" {one.quota:,}", (one.quota, row), va="center", fontsize=8)
    axis.margins(x=0.18)
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    _headed(axis, "quota", plan.unit)


def _headed(axis: Any, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)

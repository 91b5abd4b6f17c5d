"""The testbed's figures, as SVG whose bytes depend on the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from statistics import fmean
from typing import Any, Final

import numpy as np

from calibudget.errors import DependencyError
from calibudget.study.testbed.analysis import Comparison, PointResults

#: Colours that stay apart under the common kinds of colour blindness (Okabe and Ito), and marks that do without.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


def differences(groups: Sequence[tuple[str, Sequence[Comparison]]]) -> bytes:
    """Paired differences of the macro NLL, a point a seed, with the 95% interval of each mean.

    Args:
        groups: a panel each: its title, and the comparisons in it.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(groups), figsize=(4.6 * len(groups), 3.4), squeeze=False, sharex=True)
    for axis, (title, comparisons) in zip(axes[0], groups, strict=True):
        axis.axvline(0.0, color="#999999", linewidth=1)
        for row, one in enumerate(comparisons):
            values = list(one.nll.by_seed.values())
            axis.plot(values, [row] * len(values), "o", color=COLOURS[0], alpha=0.35, markersize=4)
            if one.interval is not None:
                axis.plot(one.interval, [row + 0.22] * 2, "-", color=COLOURS[1], linewidth=2)
            axis.plot([one.nll.mean], [row + 0.22], "D", color=COLOURS[1], markersize=5)
        axis.set_yticks(range(len(comparisons)), [f"- {one.comparator}" for one in comparisons])
        axis.invert_yaxis()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("macro NLL difference, nats (left is better)", fontsize=9)
        axis.tick_params(labelsize=9)
    return _svg(figure)


def exposures(point: PointResults) -> bytes:
    """Each family's held-out NLL against its quota: a mark a policy, at the means over seeds."""
    pyplot = _pyplot()
    count = len(point.labels)
    figure, axes = pyplot.subplots(2, -(-count // 2), figsize=(3.0 * -(-count // 2), 5.6), squeeze=False)
    for axis, label in zip(axes.flat, point.labels, strict=False):
        for number, policy in enumerate(point.policies):
            seeds = point.seeds(policy)
            quota = fmean(point.cells[policy, seed]["quotas"][label] for seed in seeds)
            nll = fmean(point.task(policy, seed, label, "nll") for seed in seeds)
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}
            axis.plot([max(quota, 1)], [nll], linestyle="none", markersize=6, label=policy, **style)
        axis.set_xscale("log", base=2)
        axis.set_title(label, fontsize=10)
        axis.tick_params(labelsize=8)
    _share_height(axes, count)
    for axis in axes[-1]:
        axis.set_xlabel("quota", fontsize=9)
    for row in axes:
        row[0].set_ylabel("held-out NLL", fontsize=9)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    return _svg(figure, tight=False)


def _share_height(axes: Any, count: int) -> None:
    """Give all panels the same height in nats, so that steep and flat families look it."""
    limits = [axis.get_ylim() for axis in axes.flat[:count]]
    height = max(high - low for low, high in limits)
    for axis, (low, high) in zip(axes.flat, limits, strict=False):
        middle = float(np.mean([low, high]))
        axis.set_ylim(middle - height / 2, middle + height / 2)


def _svg(figure: Any, *, tight: bool = True) -> bytes:
    buffer = BytesIO()
    if tight:
        figure.tight_layout()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    _pyplot().close(figure)
    return buffer.getvalue()


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise DependencyError("figures need matplotlib; install: pip install 'calibudget[study]'") from error
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "calibudget"
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    return pyplot

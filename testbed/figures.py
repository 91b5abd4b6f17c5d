"""The testbed's figures, as SVG whose bytes depend on the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

import numpy as np

from calibudget.study.reporting.figures import COLOURS, encoded, pyplot, style
from testbed.analysis import Comparison, PointResults


def differences(
    groups: Sequence[tuple[str, Sequence[Comparison]]], *, metric: Literal["nll", "accuracy"] = "nll"
) -> bytes:
    """Paired differences of the macro NLL or accuracy, a point a seed, with the 95% interval of each mean.

    Args:
        groups: a panel each: its title, and the comparisons in it.
        metric: which differences.
    """
    is_nll = metric == "nll"
    scale, label = (1, "NLL difference, nats (left") if is_nll else (100, "accuracy difference, points (right")
    figure, axes = pyplot().subplots(1, len(groups), figsize=(4.6 * len(groups), 3.4), squeeze=False, sharex=True)
    for axis, (title, comparisons) in zip(axes[0], groups, strict=True):
        axis.axvline(0.0, color="#999999", linewidth=1)
        for row, one in enumerate(comparisons):
            found, interval = (one.nll, one.interval) if is_nll else (one.accuracy, one.accuracy_interval)
            values = [scale * value for value in found.by_seed.values()]
            axis.plot(values, [row] * len(values), "o", color=COLOURS[0], alpha=0.35, markersize=4)
            if interval is not None:
                axis.plot([scale * end for end in interval], [row + 0.22] * 2, "-", color=COLOURS[1], linewidth=2)
            axis.plot([scale * found.mean], [row + 0.22], "D", color=COLOURS[1], markersize=5)
        axis.set_yticks(range(len(comparisons)), [f"- {one.comparator}" for one in comparisons])
        axis.invert_yaxis()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(f"macro {label} is better)", fontsize=9)
        axis.tick_params(labelsize=9)
    return _svg(figure)


def exposures(point: PointResults, *, metric: Literal["nll", "accuracy"] = "nll") -> bytes:
    """Each family's held-out NLL, or its right answers, against its quota: a mark a policy, at the means over seeds."""
    count = len(point.labels)
    figure, axes = pyplot().subplots(2, -(-count // 2), figsize=(3.0 * -(-count // 2), 5.6), squeeze=False)
    for axis, label in zip(axes.flat, point.labels, strict=False):
        for number, policy in enumerate(point.policies):
            seeds = point.seeds(policy)
            quota = fmean(point.cells[policy, seed]["quotas"][label] for seed in seeds)
            value = fmean(point.task(policy, seed, label, metric) for seed in seeds)
            axis.plot([max(quota, 1)], [value], linestyle="none", markersize=6, label=policy, **style(number))
        axis.set_xscale("log", base=2)
        axis.set_title(label, fontsize=10)
        axis.tick_params(labelsize=8)
    _share_height(axes, count)
    for axis in axes[-1]:
        axis.set_xlabel("quota", fontsize=9)
    for row in axes:
        row[0].set_ylabel("held-out NLL" if metric == "nll" else "right answers", fontsize=9)
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
    if tight:
        figure.tight_layout()
    data = encoded(figure, "svg")
    pyplot().close(figure)
    return data

"""Intervals by resampling what a comparison was drawn from: tasks, seeds, and the items within tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibudget.evaluation.aggregates import Panels, task_weights
from calibudget.keys import named_stream

Floats = NDArray[np.float64]

RESAMPLES: Final = 10_000
#: Products of replicates and items that are held at a time.
_HELD: Final = 2**23


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A percentile interval.

    Attributes:
        low: its lower end, one of the replicates.
        high: its upper end.
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Tasks that a panel takes the mean of, and what that mean weighs in the panel."""

    tasks: tuple[str, ...]
    weight: Fraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskItems:
    """Paired differences of one task, item by item.

    Attributes:
        differences: one array a seed, in the order of the seeds; shape (number of items,), never empty.
        shared: whether all seeds were asked the same items, in the same order.
    """

    differences: Sequence[Floats]
    shared: bool


def bootstrap_tasks(
    differences: Mapping[str, Sequence[float]],
    strata: Sequence[Stratum],
    *,
    over: Literal["tasks", "tasks and seeds"] = "tasks",
    draws: Draws,
) -> Interval:
    """Interval of a panel's mean difference when its tasks are drawn again (paper 3.4, Qwen2.5 audit).

    A replicate draws within each stratum as many tasks as it has, with replacement, and under "tasks and seeds" as
    many seeds for all tasks together. With few tasks in a stratum the interval is coarse: two tasks have three means.
    The differences are by task, one a seed, the seeds in the same order in each.
    """
    arrays = [np.array([differences[task] for task in stratum.tasks], dtype=np.float64) for stratum in strata]
    drawn_seeds = draws.indices(arrays[0].shape[1]) if over == "tasks and seeds" else None
    total = np.zeros(draws.resamples)
    for stratum, array in zip(strata, arrays, strict=True):
        tasks = draws.indices(len(stratum.tasks))
        if drawn_seeds is None:
            means = array.mean(axis=1)[tasks].mean(axis=1)
        else:
            means = array[tasks[:, :, None], drawn_seeds[:, None, :]].mean(axis=(1, 2))
        total += float(stratum.weight) * means
    return draws.interval(total)


def bootstrap_examples(tasks: Mapping[str, TaskItems], weights: Mapping[str, float], draws: Draws) -> Interval:
    """Interval of a weighted mean of tasks when seeds and items are drawn again, tasks staying as they are.

    A replicate draws the seeds with replacement, the same for all tasks, then the items of each task: once for all
    seeds where they share the items (crossed, since one item's difficulty is in every seed's score), else anew within
    each drawn seed (nested). All tasks are over the same seeds.
    """
    seeds = draws.indices(len(next(iter(tasks.values())).differences))
    total = np.zeros(draws.resamples)
    for task, weight in weights.items():
        total += weight * _replicates(tasks[task], seeds, draws)
    return draws.interval(total)


def strata_of(panel: str, panels: Panels) -> tuple[Stratum, ...]:
    """The groups of tasks that a resampling of tasks draws within: those that the panel itself takes a mean of.

    `Overall` has two, the mathematical and the commonsense tasks, of weight 1/2 each; `MacroAvg` has one.
    """
    task_weights(panel, panels)  # refuses what isn't a panel
    return tuple(_strata(panels[panel], panels, Fraction(1)))


def _strata(parts: Sequence[str], panels: Panels, weight: Fraction) -> list[Stratum]:
    tasks = tuple(part for part in parts if part not in panels)
    share = weight / len(parts)
    own = [Stratum(tasks=tasks, weight=share * len(tasks))] if tasks else []
    return own + [one for part in parts if part in panels for one in _strata(panels[part], panels, share)]


def _replicates(items: TaskItems, seeds: NDArray[np.int64], draws: Draws) -> Floats:
    """The task's mean difference in each replicate, shape (R,)."""
    if not items.shared:
        return _nested(items.differences, seeds, draws)
    matrix = np.stack(items.differences)  # (seeds, items)
    counts = np.apply_along_axis(np.bincount, 1, seeds, minlength=len(matrix)) / seeds.shape[1]  # (R, seeds)
    found = np.empty(len(seeds))
    size = matrix.shape[1]
    for start in range(0, len(seeds), step := max(1, _HELD // size)):
        stop = min(start + step, len(seeds))
        drawn = draws.counts(stop - start, size)  # (r, items)
        by_seed = drawn @ matrix.T / size  # (r, seeds)
        found[start:stop] = (by_seed * counts[start:stop]).sum(axis=1)
    return found


def _nested(differences: Sequence[Floats], seeds: NDArray[np.int64], draws: Draws) -> Floats:
    """As `_replicates`, with items drawn anew for every drawn seed."""
    total = np.zeros(len(seeds))
    for column in seeds.T:
        for number, values in enumerate(differences):
            rows = np.flatnonzero(column == number)
            for start in range(0, len(rows), step := max(1, _HELD // len(values))):
                part = rows[start : start + step]
                total[part] += draws.counts(len(part), len(values)) @ values / len(values)
    means: Floats = total / seeds.shape[1]
    return means


class Draws:
    """One stream of uniform indices, each ((raw >> 32) * n) >> 32 of a 64-bit output, as in calibration.

    Args:
        name: what is compared; with the seed it names the stream.
        seed: the analysis seed.
        resamples: number of replicates.
        level: of the interval, between 0 and 1.
    """

    def __init__(self, name: str, seed: int, resamples: int = RESAMPLES, level: float = 0.95) -> None:
        self._stream, self.resamples, self._level = named_stream("study", seed, name), resamples, level

    def indices(self, size: int) -> NDArray[np.int64]:
        """Indices below `size`, shape (R, size)."""
        return self._draw(self.resamples, size)

    def counts(self, rows: int, size: int) -> Floats:
        """How often each of `size` items is drawn in as many draws, shape (rows, size)."""
        drawn = self._draw(rows, size) + np.arange(rows)[:, None] * size
        return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)

    def _draw(self, rows: int, size: int) -> NDArray[np.int64]:
        raw = self._stream.random_raw(rows * size) >> np.uint64(32)
        return ((raw * np.uint64(size)) >> np.uint64(32)).astype(np.int64).reshape(rows, size)

    def interval(self, replicates: Floats) -> Interval:
        """The quantiles of a statistic's replicates."""
        ends = [(1 - self._level) / 2, (1 + self._level) / 2]
        low, high = np.quantile(replicates, ends, method="inverted_cdf")
        return Interval(low=float(low), high=float(high))

"""What the testbed's results say: means by policy, paired differences with intervals, claims judged together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Final, Literal

import numpy as np

from calibudget.errors import StudyError
from calibudget.study.reporting.claims import (
    Claim,
    Effects,
    Wins,
    detectable_effect,
    effects,
    judge_claims,
    t_interval,
    wins,
)
from calibudget.study.reporting.intervals import Draws, Interval, TaskItems, bootstrap_examples
from testbed.bench import unpacked
from testbed.families import COMPANION
from testbed.protocol import Point, Protocol
from testbed.results import Line, Results

#: Of a family in a cell: nats a token, right answers, nats a reference answer, and that answer's probability.
Metric = Literal["nll", "accuracy", "answer_nll", "probability"]
_OF_ANSWERS: Final = {"answer_nll": "nll", "probability": "probability"}

#: Seed of the bootstrap over seeds and held-out records.
ANALYSIS_SEED: Final = 42
_ALPHA: Final = 0.05
_LOWER: Final[Literal["lower"]] = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A policy against another at the same seeds; differences are policy minus comparator.

    Attributes:
        policy: the policy.
        comparator: what it is compared with.
        nll: paired differences of the macro NLL, nats.
        interval: 95% of their mean by Student's t over seeds; None for one seed.
        examples: 95% interval over seeds and held-out records together.
        accuracy: paired differences of the macro accuracy.
        accuracy_interval: 95% of their mean, as `interval`.
        log_ratio: paired differences of the mean logarithm of the families' NLLs: every family weighs alike in them,
            whereas the macro NLL is moved most by families of many nats.
        log_ratio_interval: 95% of their mean, as `interval`.
        wins: families and seeds at which the policy's NLL is lower.
        relative: the mean difference over the comparator's mean macro NLL.
        detectable: the least true difference that as many seeds find with probability 0.8; None for one seed.
    """

    policy: str
    comparator: str
    nll: Effects
    interval: tuple[float, float] | None
    examples: Interval
    accuracy: Effects
    accuracy_interval: tuple[float, float] | None
    log_ratio: Effects
    log_ratio_interval: tuple[float, float] | None
    wins: Wins
    relative: float
    detectable: float | None


class PointResults:
    """The finished cells of one point, or of several that are one comparison.

    Args:
        results: where they are.
        points: of the same half, budget and floor.

    Raises:
        StudyError: a cell whose training is missing.
    """

    def __init__(self, results: Results, *points: Point) -> None:
        self.points = points
        self.point = points[0]
        names = {point.name for point in points}
        self.cells: dict[tuple[str, int], Line] = {}
        self.runs: dict[tuple[str, int], Line] = {}
        for cell in results.lines("cell"):
            if cell["point"] not in names:
                continue
            run = results.find(cell["run"])
            if run is None:
                raise StudyError(f"{cell['point']}/{cell['policy']}/{cell['seed']}: its training isn't in the results")
            self.cells[cell["policy"], cell["seed"]] = cell
            self.runs[cell["policy"], cell["seed"]] = run

    @cached_property
    def labels(self) -> list[str]:
        """The half's families in code-point order."""
        return sorted(next(iter(self.cells.values()))["quotas"])

    @property
    def policies(self) -> list[str]:
        """The policies that have finished cells, in the protocol's order."""
        named = dict.fromkeys(policy for point in self.points for policy in point.policies)
        return [policy for policy in named if self.seeds(policy)]

    def seeds(self, policy: str) -> list[int]:
        """The seeds at which a policy's cell is finished."""
        return sorted(seed for name, seed in self.cells if name == policy)

    def task(self, policy: str, seed: int, label: str, metric: str) -> float:
        """A family's metric in one cell; those of whole answers aren't in the first two testbeds' lines."""
        run = self.runs[policy, seed]
        if metric in _OF_ANSWERS:
            return float(run["answers"][label][_OF_ANSWERS[metric]])
        return float(run["tasks"][label][metric])

    def macro(self, policy: str, metric: Metric) -> dict[int, float]:
        """The mean over families by seed."""
        return {
            seed: fmean(self.task(policy, seed, label, metric) for label in self.labels) for seed in self.seeds(policy)
        }

    def mean_log(self, policy: str) -> dict[int, float]:
        """The mean over families of the logarithm of the NLL, by seed."""
        return {
            seed: fmean(math.log(self.task(policy, seed, label, "nll")) for label in self.labels)
            for seed in self.seeds(policy)
        }

    def contributions(self, policy: str, comparator: str) -> dict[str, float]:
        """What each family adds to the mean difference of the macro NLL, over the seeds at which both are finished."""
        shared = [seed for seed in self.seeds(policy) if (comparator, seed) in self.cells]
        return {
            label: fmean(
                self.task(policy, seed, label, "nll") - self.task(comparator, seed, label, "nll") for seed in shared
            )
            / len(self.labels)
            for label in self.labels
        }

    def without(self, policy: str, comparator: str, label: str) -> Effects:
        """Paired differences of the macro NLL over all families but one."""
        rest = [other for other in self.labels if other != label]
        shared = [seed for seed in self.seeds(policy) if (comparator, seed) in self.cells]
        policies = (policy, comparator)
        return effects(*({s: fmean(self.task(p, s, o, "nll") for o in rest) for s in shared} for p in policies))

    def retention(self, policy: str, metric: Metric) -> dict[int, float]:
        """The companion family's metric by seed."""
        return {seed: self.task(policy, seed, COMPANION.name, metric) for seed in self.seeds(policy)}

    def quotas(self, policy: str) -> dict[str, float]:
        """Mean quota of each family over the seeds."""
        return {
            label: fmean(self.cells[policy, seed]["quotas"][label] for seed in self.seeds(policy))
            for label in self.labels
        }

    def compare(self, policy: str, comparator: str) -> Comparison:
        """A policy against another over the seeds at which both are finished.

        Raises:
            StudyError: there is none.
        """
        shared = [seed for seed in self.seeds(policy) if (comparator, seed) in self.cells]
        nll = effects(*(_only(self.macro(name, "nll"), shared) for name in (policy, comparator)))
        accuracy = effects(*(_only(self.macro(name, "accuracy"), shared) for name in (policy, comparator)))
        logs = effects(*(_only(self.mean_log(name), shared) for name in (policy, comparator)))
        by_task = [
            {(label, seed): self.task(name, seed, label, "nll") for label in self.labels for seed in shared}
            for name in (policy, comparator)
        ]
        return Comparison(
            policy=policy,
            comparator=comparator,
            nll=nll,
            interval=t_interval(nll),
            examples=self._interval(policy, comparator, shared),
            accuracy=accuracy,
            accuracy_interval=t_interval(accuracy),
            log_ratio=logs,
            log_ratio_interval=t_interval(logs),
            wins=wins(by_task[0], by_task[1], "lower"),
            relative=nll.mean / fmean(_only(self.macro(comparator, "nll"), shared).values()),
            detectable=None if nll.sd is None else detectable_effect(nll.sd, nll.seeds),
        )

    def _interval(self, policy: str, comparator: str, seeds: Sequence[int]) -> Interval:
        tasks = {
            label: TaskItems(
                differences=[
                    unpacked(self.runs[policy, seed]["items"][label])
                    - unpacked(self.runs[comparator, seed]["items"][label])
                    for seed in seeds
                ],
                shared=True,
            )
            for label in self.labels
        }
        weights = dict.fromkeys(self.labels, 1 / len(self.labels))
        name = f"{self.point.name}: {policy} - {comparator}"
        return bootstrap_examples(tasks, weights, Draws(name, ANALYSIS_SEED))


def claims(comparisons: Sequence[Comparison], planned: int) -> dict[str, Claim]:
    """The comparisons judged together as claims that the policy's macro NLL is lower, by comparator.

    Args:
        comparisons: those that could be made.
        planned: how many the protocol declares; one that wasn't made counts as one of p = 1.
    """
    unmade = effects({0: 0.0}, {0: 0.0})
    every: dict[str, tuple[Effects, Literal["higher", "lower"]]] = {
        one.comparator: (one.nll, _LOWER) for one in comparisons
    }
    every |= {f"unmade {number}": (unmade, _LOWER) for number in range(planned - len(comparisons))}
    judged = judge_claims(every, alpha=_ALPHA)
    return {one.comparator: judged[one.comparator] for one in comparisons}


def spread(values: Mapping[int, float]) -> tuple[float, float | None]:
    """Mean and standard deviation (ddof 1) over seeds."""
    numbers = list(values.values())
    return fmean(numbers), stdev(numbers) if len(numbers) > 1 else None


def slopes_found(points: Sequence[PointResults]) -> dict[str, float]:
    """Fall of each family's held-out NLL per doubling of its quota over all cells given, by least squares."""
    found = {}
    for label in points[0].labels:
        pairs = [
            (math.log2(max(1, point.cells[key]["quotas"][label])), point.task(*key, label, "nll"))
            for point in points
            for key in point.cells
        ]
        x, y = (np.array(column) for column in zip(*pairs, strict=True))
        centred: Any = x - x.mean()
        found[label] = -float((centred * y).sum() / (centred * centred).sum()) if centred.any() else math.nan
    return found


def finished(protocol: Protocol, results: Results) -> dict[str, PointResults]:
    """The comparisons that have finished cells, by the name of their first point."""
    every = {}
    for point in protocol.points:
        alike = protocol.same_setting(point)
        if alike[0] is point:
            every[point.name] = PointResults(results, *alike)
    return {name: point for name, point in every.items() if point.cells}


def _only(values: Mapping[int, float], seeds: Sequence[int]) -> dict[int, float]:
    return {seed: values[seed] for seed in seeds}

"""A protocol's cells in the order in which they are run, their endpoints, and the criterion that stops a point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from calibudget.study.cell_records import Cell, CellOutcome, CellResult
from calibudget.study.protocol import Continuation, Point, Protocol


def cells_of(protocol: Protocol) -> tuple[Cell, ...]:
    """Every cell of a protocol: by point, backbone, seed and policy, so that those of one seed and model follow."""
    return tuple(cell for name in protocol.points for cell in cells_of_point(protocol, name))


def cells_of_point(protocol: Protocol, name: str) -> tuple[Cell, ...]:
    """One point's cells."""
    point = protocol.points[name]
    return tuple(
        _cell(name, point, backbone, seed, policy)
        for backbone in protocol.backbones_of(point)
        for seed in point.seeds
        for policy in protocol.policies_of(point)
    )


def _cell(name: str, point: Point, backbone: str, seed: int, policy: str) -> Cell:
    transfer = point.transfer
    split_seed = seed if transfer is None else transfer.seed
    keeps_picks = transfer is not None and transfer.picks == "fixed"
    return Cell(
        point=name,
        policy=policy,
        backbone=backbone,
        seed=seed,
        budget=point.budget,
        floor=point.floor,
        unit=point.unit,
        kind="adaptive" if transfer is None else "transferred",
        split_seed=split_seed,
        selection_seed=split_seed if keeps_picks else seed,
        calibrated_on=backbone if transfer is None else transfer.backbone or backbone,
    )


def endpoint_value(protocol: Protocol, name: str, outcome: CellOutcome) -> float | None:
    """An endpoint of one cell: None where a task that it needs has no items, or no such metric."""
    measure, weights = protocol.endpoints[name].measure, protocol.weights(name)
    values = []
    for task, weight in weights.items():
        found = outcome.tasks.get(task)
        value = None if found is None or not found.items else found.metrics.get(measure)
        if value is None:
            return None
        values.append(weight * value)
    return math.fsum(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Which cells aren't to be run: their point's first seeds are judged and didn't reach what the protocol asks.

    A criterion whose cells have no result (they failed, or the endpoint is undefined) stops the point too: it can't be
    said to go on.
    """

    protocol: Protocol

    def looks_at(self, cell: Cell, other: Cell) -> bool:
        """Whether a cell's own running hangs on what becomes of another one."""
        rule = self._criterion(cell)
        if rule is None or other.seed not in self.protocol.points[cell.point].seeds[: rule.after]:
            return False
        return (other.point, other.backbone, other.policy) in _compared(rule, cell)

    def reason(self, cell: Cell, results: Mapping[Cell, CellResult]) -> str | None:
        """Why a cell isn't to be run, given what is finished, or None."""
        rule = self._criterion(cell)
        if rule is None:
            return None
        seeds = self.protocol.points[cell.point].seeds[: rule.after]

        def mean(place: tuple[str, str, str]) -> float | None:
            values = [
                endpoint_value(self.protocol, rule.endpoint, result)
                for one, result in results.items()
                if (one.point, one.backbone, one.policy) == place and one.seed in seeds
            ]
            known = [value for value in values if value is not None]
            return fmean(known) if len(known) == len(seeds) else None

        reached, *held = map(mean, _compared(rule, cell))
        bound = held[0] if held else rule.bound
        what = f"{rule.endpoint} of {rule.policy!r} over the seeds {', '.join(map(str, seeds))}"
        if reached is None or bound is None:
            return f"the continuation criterion can't be judged: {what} or what it is held against isn't known"
        if self.protocol.endpoints[rule.endpoint].sign * (reached - bound) >= -rule.margin:
            return None
        return f"stopped by the continuation criterion: {what} is {reached:.4f}, and {bound:.4f} is asked"

    def _criterion(self, cell: Cell) -> Continuation | None:
        """What a cell's running hangs on; nothing for those that are judged themselves."""
        point = self.protocol.points[cell.point]
        rule = point.continue_if
        return None if rule is None or cell.seed in point.seeds[: rule.after] else rule


def _compared(rule: Continuation, cell: Cell) -> list[tuple[str, str, str]]:
    """Point, backbone and policy of what is judged, then of what it is held against, unless that is a number."""
    own = (cell.point, cell.backbone, rule.policy)
    return [own] if rule.of_point is None else [own, (rule.of_point, cell.backbone, rule.of_policy or rule.policy)]

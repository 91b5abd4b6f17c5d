"""How a protocol's endpoints are shown: accuracies in percent, NLLs in nats."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import NamedTuple

from calibudget.study.protocol import Measure
from calibudget.study.reporting.results import Block
from calibudget.study.reporting.table import Quantity
from calibudget.study.statistics import Effects, Interval


class Unit(NamedTuple):
    """What a measure is multiplied by to be shown, its digits, its name and that of its differences."""

    scale: float
    digits: int
    name: str
    difference: str


UNITS: Mapping[Measure, Unit] = {
    "accuracy": Unit(100.0, 2, "%", "pp"),
    "nll": Unit(1.0, 3, "nats", "nats"),
}


def mean_shown(values: Mapping[int, float] | None, measure: Measure, *, best: bool = False) -> Quantity:
    """The mean over seeds with its standard deviation (ddof 1), where there are two seeds."""
    unit = UNITS[measure]
    if not values:
        return Quantity(value=None, digits=unit.digits)
    scaled = [unit.scale * value for value in values.values()]
    sd = stdev(scaled) if len(scaled) > 1 else None
    return Quantity(value=fmean(scaled), digits=unit.digits, sd=sd, best=best)


def difference_shown(value: float | None, measure: Measure, interval: Interval | None = None) -> Quantity:
    """A difference, with an interval if there is one."""
    unit = UNITS[measure]
    ends = None if interval is None else (unit.scale * interval.low, unit.scale * interval.high)
    scaled = None if value is None else unit.scale * value
    return Quantity(value=scaled, digits=unit.digits, signed=True, interval=ends)


def effects_shown(found: Effects | None, measure: Measure) -> Quantity:
    """A mean difference with its standard deviation."""
    shown = difference_shown(None if found is None else found.mean, measure)
    if found is None or found.sd is None:
        return shown
    return Quantity(value=shown.value, digits=shown.digits, signed=True, sd=UNITS[measure].scale * found.sd)


def head(name: str, measure: Measure, *, difference: bool = False) -> str:
    """An endpoint's name with its unit."""
    unit = UNITS[measure]
    return f"{name} ({unit.difference if difference else unit.name})"


def place(block: Block) -> str:
    """A block's name in titles."""
    return f"{block.point}, {block.backbone}"


def seeds_note(block: Block) -> str:
    """The seeds that a block is of, and what one seed can't say."""
    listed = ", ".join(map(str, block.seeds))
    return f"Seeds {listed}." if len(block.seeds) > 1 else f"Seed {listed} alone: it says nothing of spread."

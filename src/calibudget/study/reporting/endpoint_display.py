"""How a protocol's endpoints are shown: accuracies in percent, NLLs in nats."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Final, NamedTuple

from calibudget.study.protocol import Measure
from calibudget.study.reporting.claims import Effects
from calibudget.study.reporting.intervals import Interval
from calibudget.study.reporting.table import Quantity, decimal


class Unit(NamedTuple):
    """What a measure is multiplied by to be shown, its digits, its name and that of its differences."""

    scale: float
    digits: int
    name: str
    difference: str


UNITS: Mapping[Measure, Unit] = {
    "accuracy": Unit(100.0, 2, "%", "pp"),
    "nll": Unit(1.0, 3, "nats", "nats"),
    "answer_nll": Unit(1.0, 2, "nats", "nats"),
    "answer_probability": Unit(100.0, 2, "%", "pp"),
}


#: Below it a p value is told as less than it, with as many digits as all p values have.
_LEAST_P: Final = 0.001
_P_DIGITS: Final = 3


def p_shown(value: float | None) -> Quantity:
    """A p value."""
    return Quantity(value=value, digits=_P_DIGITS, least=_LEAST_P)


def p_said(value: float) -> str:
    """A p value in a sentence: `p 0.034`, `p < 0.001`."""
    return f"p < {_LEAST_P}" if value < _LEAST_P else f"p {value:.{_P_DIGITS}f}"


def amount(difference: float, measure: Measure) -> str:
    """A difference in a sentence: `+0.46 pp`."""
    unit = UNITS[measure]
    return f"{decimal(unit.scale * difference, unit.digits, signed=True)} {unit.difference}"


def sign_shown(difference: float, measure: Measure) -> int:
    """Which way a difference goes as far as it is printed: 1, -1, or 0 where it is printed as 0."""
    unit = UNITS[measure]
    rounded = round(unit.scale * difference, unit.digits)
    return (rounded > 0) - (rounded < 0)


def mean_shown(
    values: Mapping[int, float] | None, measure: Measure, *, best: bool = False, runner_up: bool = False
) -> Quantity:
    """The mean over seeds with its standard deviation (ddof 1), where there are two seeds."""
    unit = UNITS[measure]
    if not values:
        return Quantity(value=None, digits=unit.digits)
    scaled = [unit.scale * value for value in values.values()]
    sd = stdev(scaled) if len(scaled) > 1 else None
    return Quantity(value=fmean(scaled), digits=unit.digits, sd=sd, best=best, runner_up=runner_up)


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

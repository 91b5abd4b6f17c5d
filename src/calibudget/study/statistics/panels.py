"""A panel's value from its tasks' values, and the groups of tasks that are exchangeable in it (paper 3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calibudget.evaluation.aggregates import Panels, task_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Tasks that a panel takes the mean of, and what that mean weighs in the panel."""

    tasks: tuple[str, ...]
    weight: Fraction


def panel_score(panel: str, panels: Panels, tasks: Mapping[str, float | None]) -> float | None:
    """The weighted mean of a panel's tasks; None where one of them is missing or undefined, never a mean of fewer.

    Raises:
        InputError: the panel has no parts, a part twice, or is a part of itself.
    """
    weights = task_weights(panel, panels)
    values = [tasks.get(task) for task in weights]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return math.fsum(float(weight) * value for weight, value in zip(weights.values(), known, strict=True))


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

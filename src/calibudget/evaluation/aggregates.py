"""From per-task scores to the paper's averages, unweighted, each with the standard error that belongs to it.

A panel is a mean of tasks or of other panels, so every panel is a fixed weighting of tasks: a task of 10 items
weighs as much as one of 1,000, in the mean and in its standard error alike (paper 3.1: unweighted task means).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from calibudget.errors import InputError
from calibudget.values import Number

#: Panel name to the tasks or panels that it is the mean of.
Panels = Mapping[str, tuple[str, ...]]

MATH_TASKS: Final = ("math", "gsm8k")
COMMON_TASKS: Final = (
    "boolq",
    "piqa",
    "social_i_qa",
    "hellaswag",
    "winogrande",
    "arc_easy",
    "arc_challenge",
    "openbookqa",
)
CODE_TASKS: Final = ("humaneval", "mbpp")
MODERN_TASKS: Final = ("bbh", "gsm_plus", "humaneval", "ifeval", "math500", "mbpp")

#: The paper's aggregates (3.1 and 3.3).
PANELS: Final[Panels] = MappingProxyType(
    {
        "MathAvg": MATH_TASKS,
        "CommonAvg": COMMON_TASKS,
        "FragileAvg": ("social_i_qa", "arc_easy", "arc_challenge", "openbookqa"),
        "MacroAvg": (*MATH_TASKS, *COMMON_TASKS),
        "Overall": ("MathAvg", "CommonAvg"),
        "ModernMacro": MODERN_TASKS,
        "CodeMacro": CODE_TASKS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScore:
    """How one task went.

    Attributes:
        items: items judged, at least 1.
        right: items answered rightly; unparsable, missing and timed out ones are wrong.
    """

    items: int
    right: int

    def __post_init__(self) -> None:
        if self.items < 1 or not 0 <= self.right <= self.items:
            raise InputError(
                f"a task has at least one item and no more right than items, not {self.right}/{self.items}"
            )

    @property
    def score(self) -> float:
        """Share of right answers, 0 to 1."""
        return self.right / self.items

    @property
    def standard_error(self) -> float:
        """Of the share, binomial, over the sampling of items."""
        return math.sqrt(self.score * (1 - self.score) / self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelResult:
    """What a panel is the unweighted mean of, with that mean, 0 to 1, and its standard error.

    Both are None where one of its tasks has no score: a panel is never a mean of fewer tasks.
    """

    of: tuple[str, ...]
    score: Number | None
    standard_error: Number | None


def aggregate(scores: Mapping[str, TaskScore], panels: Panels = PANELS) -> dict[str, PanelResult]:
    """Every panel over the tasks that were scored.

    Raises:
        InputError: a panel without parts, with a part twice, or that is a part of itself.
    """
    return {name: _panel(parts, task_weights(name, panels), scores) for name, parts in panels.items()}


def task_weights(panel: str, panels: Panels = PANELS, above: tuple[str, ...] = ()) -> dict[str, Fraction]:
    """What each task weighs in a panel, which may lie in those above; the weights sum to 1."""
    parts = panels[panel]
    if panel in above:
        raise InputError(f"the panel {panel!r} is a part of itself: {' > '.join((*above, panel))}")
    if not parts or len(set(parts)) != len(parts):
        raise InputError(f"the panel {panel!r} must be the mean of at least one part, each named once")
    weights: dict[str, Fraction] = {}
    for part in parts:
        inner = task_weights(part, panels, (*above, panel)) if part in panels else {part: Fraction(1)}
        for task, weight in inner.items():
            weights[task] = weights.get(task, Fraction(0)) + weight / len(parts)
    return weights


def _panel(parts: tuple[str, ...], weights: Mapping[str, Fraction], scores: Mapping[str, TaskScore]) -> PanelResult:
    if not scores.keys() >= weights.keys():
        return PanelResult(of=parts, score=None, standard_error=None)
    mean = sum(
        (weight * Fraction(scores[task].right, scores[task].items) for task, weight in weights.items()), Fraction(0)
    )
    variance = math.fsum(float(weight) ** 2 * scores[task].standard_error ** 2 for task, weight in weights.items())
    return PanelResult(of=parts, score=float(mean), standard_error=math.sqrt(variance))

from __future__ import annotations

import math
from typing import Any

import pytest

from calibudget.errors import InputError
from calibudget.evaluation.aggregates import COMMON_TASKS, MATH_TASKS, PANELS, TaskScore, aggregate

#: Paper, Table 1: Math, Common, Macro and Overall in per cent.
TABLE_1 = {
    "Pooled uniform": (30.43, 69.98, 62.07, 50.21),
    "Proportional": (30.72, 69.48, 61.72, 50.10),
    "Equal": (30.51, 71.09, 62.97, 50.80),
    "Floor-Sqrt": (30.47, 71.03, 62.92, 50.75),
    "Val-error+floor": (30.91, 71.31, 63.23, 51.11),
    "CALIBUDGET": (30.72, 71.87, 63.64, 51.29),
}


def scores(**shares: float) -> dict[str, TaskScore]:
    return {task: TaskScore(items=10_000, right=round(share * 10_000)) for task, share in shares.items()}


def test_macro_and_overall_of_the_papers_table_1(subtests: pytest.Subtests) -> None:
    for row in TABLE_1:
        with subtests.test(row=row):
            math_average, common, macro, overall = TABLE_1[row]
            tasks: dict[str, Any] = {
                **dict.fromkeys(MATH_TASKS, math_average / 100),
                **dict.fromkeys(COMMON_TASKS, common / 100),
            }
            found = aggregate(scores(**tasks))
            for name, expected in (
                ("MathAvg", math_average),
                ("CommonAvg", common),
                ("MacroAvg", macro),
                ("Overall", overall),
            ):
                panel = found[name]
                assert panel.score is not None
                assert abs(100 * panel.score - expected) <= 0.01 + 1e-9, name


def test_a_panel_with_a_missing_task_is_not_reported() -> None:
    found = aggregate(scores(math=0.5, gsm8k=0.25))
    assert found["MathAvg"].score == 0.375
    assert [name for name, panel in found.items() if panel.score is None] == [
        name for name in PANELS if name != "MathAvg"
    ]


def test_the_standard_error_belongs_to_the_unweighted_mean() -> None:
    small, large = TaskScore(items=10, right=5), TaskScore(items=1000, right=500)
    found = aggregate({"small": small, "large": large}, {"both": ("small", "large")})["both"]
    assert found.score == 0.5
    assert found.standard_error is not None
    assert found.standard_error == pytest.approx(math.sqrt(small.standard_error**2 + large.standard_error**2) / 2)
    assert found.standard_error > 4 * math.sqrt(0.25 / 1010)  # what weighting by size would claim


def test_a_panel_that_means_nothing_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [{"a": ()}, {"a": ("x", "x")}, {"a": ("b",), "b": ("a",)}, {"a": ("a", "x")}]
    for panels in cases:
        with subtests.test(panels=panels), pytest.raises(InputError, match="panel"):
            aggregate({}, panels)

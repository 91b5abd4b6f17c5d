"""What the diagnostic figure shows of the retention guard."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.study.reporting.figures import diagnostics_figure, retention_bound

SEEDS = [42, 43, 44]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endpoint", "bound", "label"),
    [("Kept", 0.69, "guard: 1.00 pp below plain"), ("NLL", 1.01, "guard: 0.010 nats above plain")],
)
def test_the_guard_is_drawn_where_it_lies_and_named(made_up: Any, endpoint: str, bound: float, label: str) -> None:
    guard = {"endpoint": endpoint, "may_fall": 0.01}
    differences = {"BoolQ": dict.fromkeys(SEEDS, 0.01), "Kept": dict.fromkeys(SEEDS, -0.02)}
    results = made_up({"main": {"seeds": SEEDS}}, differences, retention=guard)
    block = next(results.blocks())
    assert retention_bound(results, block) == pytest.approx(bound)
    assert label in diagnostics_figure(results, block)["svg"].decode()


@pytest.mark.slow
def test_without_a_guard_or_its_numbers_there_is_no_line(made_up: Any) -> None:
    points = {"main": {"seeds": SEEDS}}
    free = made_up(points, {})
    block = next(free.blocks())
    assert retention_bound(free, block) is None
    assert "guard" not in diagnostics_figure(free, block)["svg"].decode()

"""What the diagnostic figure shows of the retention guard."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.study.reporting.figures import retention_bound

SEEDS = [42, 43, 44]


def test_the_guard_lies_on_the_worse_side_of_the_comparator(made_up: Any) -> None:
    differences = {"BoolQ": dict.fromkeys(SEEDS, 0.01), "Kept": dict.fromkeys(SEEDS, -0.02)}

    def guarded(**fields: Any) -> tuple[Any, Any]:
        results = made_up({"main": {"seeds": SEEDS}}, differences, **fields)
        return results, next(results.blocks())

    assert retention_bound(*guarded()) is None
    higher = guarded(retention={"endpoint": "Kept", "may_fall": 0.01})
    assert retention_bound(*higher) == pytest.approx(0.69)  # drawn in the paper's figure
    lower = guarded(retention={"endpoint": "NLL", "may_fall": 0.01})
    assert retention_bound(*lower) == pytest.approx(1.01)

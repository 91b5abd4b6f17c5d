"""What the diagnostic figure shows of the retention guard."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.study.reporting.figures import retention_bound

SEEDS = [42, 43, 44]


def test_the_guard_lies_on_the_worse_side_of_the_comparator(made_up: Any) -> None:
    differences = {"BoolQ": dict.fromkeys(SEEDS, 0.01), "Kept": dict.fromkeys(SEEDS, -0.02)}

    def bound(**fields: Any) -> float | None:
        return retention_bound(next(made_up({"main": {"seeds": SEEDS}}, differences, **fields).blocks()))

    assert bound() is None
    assert bound(retention={"endpoint": "Kept", "may_fall": 0.01}) == pytest.approx(0.69)  # drawn in the paper's figure
    assert bound(retention={"endpoint": "NLL", "may_fall": 0.01}) == pytest.approx(1.01)

"""Results that are made up in memory: a comparison whose differences by seed a test says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from calibudget.study.cell_records import Cell, CellOutcome, TaskMetrics
from calibudget.study.grid import StopRule, cells_of
from calibudget.study.protocol import Protocol
from calibudget.study.reporting.results import Results

DIGESTS = dict.fromkeys(("code", "data", "protocol"), "0" * 64)
FIELDS: dict[str, Any] = {
    "name": "made up",
    "recipe": "recipe.yaml",
    "backbones": {"tiny": {"model": "none"}},
    "policies": {"rule": {}, "plain": {}},
    "focus": "rule",
    "comparator": "plain",
    "endpoints": {
        "BoolQ": {"panel": "boolq"},
        "NLL": {"panel": "boolq", "measure": "nll"},
        "Kept": {"panel": "openbookqa"},
    },
    "primary": ["BoolQ", "NLL"],
    "evaluation": [{"tasks": ["boolq", "openbookqa"]}],
}
START = {"BoolQ": 0.5, "NLL": 1.0, "Kept": 0.7}

Differences = Mapping[str, Mapping[int, float | None]]


def _outcome(cell: Cell, differences: Differences) -> CellOutcome:
    """The comparator scores `START`, the focus lies as far from it as is said; None is undefined."""

    def score(endpoint: str) -> float | None:
        own = differences.get(endpoint, {}).get(cell.seed, 0.0) if cell.policy == "rule" else 0.0
        return None if own is None else START[endpoint] + own

    moved = 5 if cell.policy == "rule" else 0
    return CellOutcome(
        quotas={"boolq": 50 + moved, "openbookqa": 50 - moved},
        tasks={
            "boolq": TaskMetrics(items=100, metrics={"accuracy": score("BoolQ"), "nll": score("NLL")}),
            "openbookqa": TaskMetrics(items=100, metrics={"accuracy": score("Kept")}),
        },
        seconds={},
    )


@pytest.fixture
def made_up() -> Callable[..., Results]:
    """Results of points (fields by name), of which some seeds are finished, with differences by endpoint and seed."""

    def make(
        points: Mapping[str, Mapping[str, Any]],
        differences: Differences,
        *,
        finished: Mapping[str, Collection[int]] | None = None,
        lost: Collection[str] = (),
        **fields: Any,
    ) -> Results:
        whole = {name: {"budget": 100, "floor": 10, "status": "confirmatory", **one} for name, one in points.items()}
        protocol = Protocol.model_validate({**FIELDS, "points": whole, **fields})
        cells = cells_of(protocol)
        there = {
            cell: _outcome(cell, differences).of_cell(cell, DIGESTS)
            for cell in cells
            if (finished is None or cell.seed in finished.get(cell.point, ())) and cell.name not in lost
        }
        stops = StopRule(protocol=protocol)
        left = [cell for cell in cells if cell not in there]
        stopped = {cell: why for cell in left if (why := stops.reason(cell, there)) is not None}
        return Results(
            protocol=protocol,
            results=there,
            statuses={name: point.status for name, point in protocol.points.items()},
            missing={cell: "not run yet" for cell in left if cell not in stopped},
            stopped=stopped,
        )

    return make

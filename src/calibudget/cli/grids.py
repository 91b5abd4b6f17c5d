"""Tables and JSON of `whatif` and `stability`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from calibudget.cli.tables import new_table, print_json, print_line, print_table
from calibudget.messages import counted
from calibudget.records import Exponents, Unit

if TYPE_CHECKING:
    from calibudget.allocation.stability import WhatIf
    from calibudget.pipeline.explore import StabilityAudit

_EXPONENTS = ("need", "availability", "reliability")


def print_grid(policy: str, unit: Unit, points: Sequence[WhatIf], *, as_json: bool) -> None:
    """The quotas at every point of a grid, one row a point."""
    if as_json:
        grid = [asdict(point) for point in points]
        print_json({"schema": "calibudget.whatif/1", "policy": policy, "unit": unit, "points": grid})
        return
    varied = [name for name in _EXPONENTS if len({getattr(point.exponents, name) for point in points}) > 1]
    labels = next(tuple(point.quotas) for point in points if point.quotas is not None)
    table = new_table(f"{policy}: quotas in {unit} over the grid{_fixed(points[0].exponents, varied)}")
    for column in ("budget", "floor", *(f"{name}^" for name in varied), "residual", *labels):
        table.add_column(column, justify="right")
    for point in points:
        place = [f"{point.budget:,}", f"{point.floor:,}" if isinstance(point.floor, int) else str(point.floor)]
        place += [f"{getattr(point.exponents, name):g}" for name in varied]
        quotas = [""] * len(labels) if point.quotas is None else [f"{point.quotas[label]:,}" for label in labels]
        table.add_row(*place, "" if point.residual_budget is None else f"{point.residual_budget:,}", *quotas)
    print_table(table)
    for point in points:
        if point.refusal is not None:
            print_line(f"budget {point.budget:,}, floor {point.floor}: {point.refusal}")


def print_audit(found: StabilityAudit, *, as_json: bool) -> None:
    """How far quotas move between calibration splits, policy by policy."""
    if as_json:
        print_json(found.to_json())
        return
    if found.policies:
        table = new_table(f"quotas over {counted(found.splits, 'calibration split')}")
        table.add_column("policy", no_wrap=True)
        for column in ("mean quota sd", "largest range", "smallest Spearman", "smallest Pearson"):
            table.add_column(column, justify="right")
        for policy, row in found.policies.items():
            correlations = (_correlation(row.smallest_spearman), _correlation(row.smallest_pearson))
            table.add_row(policy, f"{row.mean_quota_sd:,.2f}", f"{row.largest_range:,}", *correlations)
        print_table(table)
    for policy, splits in found.pairs.items():
        for number, pairs in enumerate(splits, start=1):
            table = new_table(f"{policy}, split {number}: how surely the first gets more than the second")
            table.add_column("more", no_wrap=True)
            table.add_column("less", no_wrap=True)
            table.add_column("probability", justify="right")
            for pair in pairs:
                table.add_row(pair.greater, pair.lesser, f"{pair.probability:.3f}")
            print_table(table)


def _fixed(exponents: Exponents, varied: Sequence[str]) -> str:
    """The exponents that don't vary, where they aren't the paper's."""
    if exponents == Exponents():
        return ""
    others = [f"{name}^{getattr(exponents, name):g}" for name in _EXPONENTS if name not in varied]
    return f" ({', '.join(others)})" if others else ""


def _correlation(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"

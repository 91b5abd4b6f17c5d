"""Tables of warm-ups and learning curves, and the canonical JSON of the same things for machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from calibudget.cli.tables import new_table, print_json, print_line, print_table
from calibudget.messages import counted
from calibudget.store import WarmUpFile

if TYPE_CHECKING:
    from calibudget.pipeline import CurveView


def print_warm_ups(warm_ups: WarmUpFile, output: Path, *, as_json: bool) -> None:
    """What was trained, and the mean NLL of each source after each warm-up."""
    means = {label: _means(warm_ups, label) for label in warm_ups.labels}
    if as_json:
        runs = [{"examples": run.examples, "steps": run.steps, "seconds": run.seconds} for run in warm_ups.runs]
        body = {"schema": "calibudget.warm-up/1", "output": str(output), "runs": runs, "mean_nll": means}
        print_json(body)
        return
    for number, run in enumerate(warm_ups.runs, start=1):
        steps = counted(run.steps, "step")
        print_line(f"warm-up {number}: {counted(run.examples, 'example')}, {steps}, {run.seconds:,.0f} s")
    after = "the warm-up of that number" if warm_ups.mixtures else f"so many {warm_ups.unit}"
    table = new_table(f"mean calibration NLL after {after}, in {output}")
    table.add_column("source", no_wrap=True)
    table.add_column("warm-up: NLL" if warm_ups.mixtures else "exposure: NLL")
    for label, own in means.items():
        table.add_row(label, "   ".join(f"{int(name):,}: {mean:.4f}" for name, mean in own.items()))
    print_table(table)


def _means(warm_ups: WarmUpFile, label: str) -> dict[str, float]:
    """A source's mean NLL by exposure, or of mixtures, where that recurs, by number of the warm-up."""
    exposures = warm_ups.exposures(label)
    return {
        str(number if warm_ups.mixtures else exposures[number]): math.fsum(nlls.values()) / len(nlls)
        for number, nlls in warm_ups.of(label).items()
    }


def print_curves(view: CurveView, *, as_json: bool) -> None:
    """The curve of each source, its quota, and the predicted NLL beside the measured one."""
    if as_json:
        print_json(view.to_json())
        return
    from calibudget.pipeline.notes import predicted

    outcome = view.outcome
    title = f"learning curves ({view.report.form}), slopes in nats per doubling"
    table = new_table(title)
    columns = ["slope", "as measured", "95% interval", "needs", "quota", "95% interval", "predicted NLL"]
    table.add_column("source", no_wrap=True)
    table.add_column("")
    for column in [*columns, *(["measured NLL"] if outcome is not None else [])]:
        table.add_column(column, justify="right", no_wrap=True, style="bold" if column == "quota" else "")
    for label, row in view.report.sources.items():
        fit, (low, high) = row.fit, row.quota_interval
        bend = f" ^{fit.curve.exponent:g}" if fit.curve.exponent else ""
        needed = "" if fit.records_needed is None else f"{fit.records_needed:,}"
        cells = [
            f"{fit.slope:.4f}{bend}",
            f"{fit.raw_slope:.4f}",
            f"{fit.interval[0]:.4f} - {fit.interval[1]:.4f}",
            needed,
            f"{view.quotas[label]:,}",
            f"{low:,} - {high:,}",
            "" if row.predicted_nll is None else f"{row.predicted_nll:.4f}",
        ]
        table.add_row(label, fit.verdict, *cells, *([f"{outcome[label]:.4f}"] if outcome is not None else []))
    print_table(table)
    records = "calibration records" if view.report.transfer is None else "calibration records of all sources"
    print_line(f"needs: {records} with which the slope would be two standard deviations from 0")
    if view.report.transfer is not None:
        print_table(_transfer_table(view.report.transfer))
    print_line(predicted(view.report))
    if view.outcome_nll is not None:
        print_line(f"measured macro NLL of the calibration split after training: {view.outcome_nll:.4f}")


def _transfer_table(transfer: Mapping[str, Mapping[str, float]]) -> Table:
    """What a doubling of each source gives to every source."""
    table = new_table("fall of each source's NLL when the source of the row doubles, nats")
    table.add_column("doubled", no_wrap=True)
    for label in transfer:
        table.add_column(label, justify="right", no_wrap=True)
    for label, row in transfer.items():
        table.add_row(label, *(f"{row[other]:+.4f}" for other in transfer))
    return table

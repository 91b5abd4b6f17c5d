"""Which of several rules was best on the half that may be looked at."""

from __future__ import annotations

import math

from testbed.protocol import PolicyRule, Protocol
from testbed.results import Line, Results


def macro(results: Results, cell: Line, metric: str = "nll") -> float:
    """Mean of a metric over a cell's families, the companion left out."""
    run = results.find(cell["run"])
    tasks = {} if run is None else run["tasks"]
    return math.fsum(tasks[label][metric] for label in cell["quotas"]) / len(cell["quotas"])


def choose(protocol: Protocol, results: Results, rule: PolicyRule) -> str | None:
    """The policy with the least mean macro NLL over the seeds of the choosing point; None until all are finished.

    Of equal ones the one that the protocol names first is taken.
    """
    if protocol.choosing is None:
        return None
    point = protocol.point(protocol.choosing)
    cells = {(cell["policy"], cell["seed"]): cell for cell in results.lines("cell") if cell["point"] == point.name}
    if any((policy, seed) not in cells for policy in rule.among for seed in point.seeds):
        return None
    means = [
        math.fsum(macro(results, cells[policy, seed]) for seed in point.seeds) / len(point.seeds)
        for policy in rule.among
    ]
    return rule.among[means.index(min(means))]

"""The frozen panel: 320 prompts spread equally over the six modern tasks, their ids in a committed file.

The paper's panel has 320 prompts over the same six data sets; which ones, it doesn't say. Ours are the first of
each task in keyed order under the role "panel", as many as `apportion` gives each at equal weight, and frozen: the
file, not the rule, says which prompts are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Final

from calibudget.allocation.quotas import apportion
from calibudget.errors import ArtefactError, DataError
from calibudget.evaluation.aggregates import MODERN_TASKS
from calibudget.evaluation.benchmarks import PANEL, Benchmark
from calibudget.keys import order_key
from calibudget.store.canonical import canonical_json, loads_object

PANEL_SIZE: Final = 320
_SEED: Final = 42
_ROLE: Final = "panel"
_SCHEMA: Final = "calibudget.panel/1"
_FILE: Final = "panel-320.json"


def draw_panel(ids: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The ids that the rule picks of each task's ids, in keyed order."""
    quotas = apportion(dict.fromkeys(ids, 1.0), PANEL_SIZE, upper={task: len(own) for task, own in ids.items()}).quotas
    return {
        task: tuple(sorted(ids[task], key=lambda one, task=task: order_key(_ROLE, _SEED, task, one))[: quotas[task]])  # type: ignore[misc]
        for task in sorted(ids)
    }


def panel_bytes(picks: Mapping[str, Sequence[str]]) -> bytes:
    """The panel's file."""
    return canonical_json({"schema": _SCHEMA, "seed": _SEED, "tasks": {task: list(own) for task, own in picks.items()}})


def frozen_panel() -> dict[str, tuple[str, ...]]:
    """The committed panel: ids by task, each in keyed order.

    Raises:
        ArtefactError: the installed file isn't a panel of the six tasks and 320 prompts.
    """
    data = (resources.files("calibudget.evaluation") / _FILE).read_bytes()
    tasks = loads_object(data, _FILE).get("tasks")
    if not isinstance(tasks, dict) or set(tasks) != set(MODERN_TASKS):
        raise ArtefactError(f"{_FILE}: holds other tasks than {', '.join(MODERN_TASKS)}")
    picks = {task: tuple(map(str, own)) for task, own in tasks.items()}
    if sum(map(len, picks.values())) != PANEL_SIZE or any(len(set(own)) != len(own) for own in picks.values()):
        raise ArtefactError(f"{_FILE}: isn't a panel of {PANEL_SIZE} distinct prompts")
    return picks


def on_panel(benchmark: Benchmark) -> Benchmark:
    """A modern benchmark cut down to its prompts of the panel.

    Raises:
        DataError: the task has no part in the panel, or the data lacks one of its prompts.
    """
    picks = frozen_panel()
    if benchmark.name not in picks:
        raise DataError(f"task {benchmark.name!r} has no part in the panel; it has {', '.join(picks)}")
    return replace(benchmark.only(picks[benchmark.name]), subset=PANEL)

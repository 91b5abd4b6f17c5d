from __future__ import annotations

from pathlib import Path

import pytest

from calibudget.allocation.quotas import apportion
from calibudget.evaluation.aggregates import MODERN_TASKS
from calibudget.evaluation.benchmarks import PANEL_SIZE, frozen_panel, load_benchmark, on_panel
from calibudget.keys import order_key


def test_320_prompts_spread_equally_over_the_six() -> None:
    picks = frozen_panel()
    assert {task: len(ids) for task, ids in picks.items()} == {
        "bbh": 54, "gsm_plus": 54, "humaneval": 53, "ifeval": 53, "math500": 53, "mbpp": 53,
    }  # fmt: skip
    assert sum(map(len, picks.values())) == PANEL_SIZE


@pytest.mark.data
@pytest.mark.slow
def test_the_frozen_panel_is_what_the_rule_draws(data_dir: Path) -> None:
    benchmarks = {name: load_benchmark(name, data_dir) for name in MODERN_TASKS}
    ids = {name: [item.record.record_id for item in one.items] for name, one in benchmarks.items()}
    quotas = apportion(dict.fromkeys(ids, 1.0), PANEL_SIZE, upper={task: len(own) for task, own in ids.items()}).quotas
    for task, own in ids.items():
        ordered = sorted(own, key=lambda one: order_key("panel", 42, task, one))
        assert frozen_panel()[task] == tuple(ordered[: quotas[task]])
    assert sum(len(on_panel(one).items) for one in benchmarks.values()) == PANEL_SIZE

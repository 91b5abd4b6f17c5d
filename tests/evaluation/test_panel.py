from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.errors import ArtefactError
from calibudget.evaluation import panel
from calibudget.evaluation.aggregates import MODERN_TASKS
from calibudget.evaluation.benchmarks import load_benchmark
from calibudget.evaluation.panel import PANEL_SIZE, draw_panel, frozen_panel, on_panel


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
    assert draw_panel(ids) == frozen_panel()
    assert sum(len(on_panel(one).items) for one in benchmarks.values()) == PANEL_SIZE


def test_the_draw_depends_on_ids_alone() -> None:
    ids = {task: [f"{task}-{n}" for n in range(100)] for task in MODERN_TASKS}
    backwards = {task: own[::-1] for task, own in reversed(ids.items())}
    assert draw_panel(ids) == draw_panel(backwards)


@pytest.mark.parametrize("spoil", ["task", "count", "twice"])
def test_a_spoilt_panel_is_refused(spoil: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tasks = {task: list(ids) for task, ids in frozen_panel().items()}
    if spoil == "task":
        tasks["other"] = tasks.pop("bbh")
    elif spoil == "count":
        tasks["bbh"].pop()
    else:
        tasks["bbh"][0] = tasks["bbh"][1]
    (tmp_path / "panel-320.json").write_text(json.dumps({"tasks": tasks}))
    monkeypatch.setattr(panel.resources, "files", lambda _: tmp_path)  # type: ignore[attr-defined]
    with pytest.raises(ArtefactError, match="panel-320"):
        frozen_panel()

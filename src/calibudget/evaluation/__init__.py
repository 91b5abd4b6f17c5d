"""Benchmarks to per-task scores and aggregates; generated code runs in a sandbox only.

Names are loaded on first use, so importing this package imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.evaluation.aggregates import PANELS, Panels, PanelScore, TaskScore, aggregate
    from calibudget.evaluation.benchmarks import GROUPS, PANEL, TASKS, Benchmark, Task, expand_tasks, load_benchmark
    from calibudget.evaluation.engine import judge_again, predict, predict_by_likelihood
    from calibudget.evaluation.judge import Judge, open_judge
    from calibudget.evaluation.panel import frozen_panel, on_panel
    from calibudget.evaluation.predictions import Prediction, read_predictions, write_predictions
    from calibudget.evaluation.results import Evaluation, TaskResult
    from calibudget.evaluation.sandbox import CodeCase, CodeVerdict, Limits, Sandbox, open_sandbox

_HOMES = {
    "PANELS": "aggregates",
    "PanelScore": "aggregates",
    "Panels": "aggregates",
    "TaskScore": "aggregates",
    "aggregate": "aggregates",
    "GROUPS": "benchmarks",
    "TASKS": "benchmarks",
    "Benchmark": "benchmarks",
    "Task": "benchmarks",
    "expand_tasks": "benchmarks",
    "load_benchmark": "benchmarks",
    "judge_again": "engine",
    "predict": "engine",
    "predict_by_likelihood": "engine",
    "Judge": "judge",
    "open_judge": "judge",
    "PANEL": "benchmarks",
    "frozen_panel": "panel",
    "on_panel": "panel",
    "Prediction": "predictions",
    "read_predictions": "predictions",
    "write_predictions": "predictions",
    "Evaluation": "results",
    "TaskResult": "results",
    "CodeCase": "sandbox",
    "CodeVerdict": "sandbox",
    "Limits": "sandbox",
    "Sandbox": "sandbox",
    "open_sandbox": "sandbox",
}

__all__ = [
    "GROUPS",
    "PANEL",
    "PANELS",
    "TASKS",
    "Benchmark",
    "CodeCase",
    "CodeVerdict",
    "Evaluation",
    "Judge",
    "Limits",
    "PanelScore",
    "Panels",
    "Prediction",
    "Sandbox",
    "Task",
    "TaskResult",
    "TaskScore",
    "aggregate",
    "expand_tasks",
    "frozen_panel",
    "judge_again",
    "load_benchmark",
    "on_panel",
    "open_judge",
    "open_sandbox",
    "predict",
    "predict_by_likelihood",
    "read_predictions",
    "write_predictions",
]

__getattr__ = on_first_use(__name__, _HOMES)

"""CaliBudget turns a fixed training budget into exact, calibrated and verifiable quotas per data source.

    from calibudget import load_recipe, run

    result = run(load_recipe("recipe.yaml"), "runs/first")

Names are loaded on first use: importing this package imports neither numpy nor a model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.allocation import Stability, WhatIf, allocate, apportion, plan, stability, utilities, what_if
    from calibudget.errors import CalibudgetError
    from calibudget.pipeline import RunResult, Verification, run, score, verify
    from calibudget.recipe import Recipe, load_recipe
    from calibudget.records import Allocation, AllocationPlan, Exponents, Score, Statistics
    from calibudget.selection import canonical_selected_indices_sha256

_HOMES = {
    "Stability": "allocation",
    "WhatIf": "allocation",
    "allocate": "allocation",
    "apportion": "allocation",
    "plan": "allocation",
    "stability": "allocation",
    "utilities": "allocation",
    "what_if": "allocation",
    "CalibudgetError": "errors",
    "RunResult": "pipeline",
    "Verification": "pipeline",
    "run": "pipeline",
    "score": "pipeline",
    "verify": "pipeline",
    "Recipe": "recipe",
    "load_recipe": "recipe",
    "Allocation": "records",
    "AllocationPlan": "records",
    "Exponents": "records",
    "Score": "records",
    "Statistics": "records",
    "canonical_selected_indices_sha256": "selection",
}

__all__ = [
    "Allocation",
    "AllocationPlan",
    "CalibudgetError",
    "Exponents",
    "Recipe",
    "RunResult",
    "Score",
    "Stability",
    "Statistics",
    "Verification",
    "WhatIf",
    "allocate",
    "apportion",
    "canonical_selected_indices_sha256",
    "load_recipe",
    "plan",
    "run",
    "score",
    "stability",
    "utilities",
    "verify",
    "what_if",
]

__getattr__ = on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, and no others."""
    return __all__

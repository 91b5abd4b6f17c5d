"""CaliBudget turns a fixed training budget into exact, calibrated and verifiable quotas per data source.

    from calibudget import load_recipe, run

    result = run(load_recipe("recipe.yaml"), "runs/first")

Names are loaded on first use: importing this package imports neither numpy nor a model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibudget.allocation.plan import plan
    from calibudget.allocation.quotas import Allocation, allocate, apportion
    from calibudget.allocation.stability import Stability, WhatIf, stability, what_if
    from calibudget.allocation.utility_factors import utilities
    from calibudget.errors import CalibudgetError
    from calibudget.pipeline.run import RunResult, run
    from calibudget.pipeline.score import score
    from calibudget.pipeline.verify import Verification, verify
    from calibudget.recipe.load import load_recipe
    from calibudget.recipe.schema import Recipe
    from calibudget.records import AllocationPlan, Exponents, Score, Statistics
    from calibudget.selection.draw import canonical_selected_indices_sha256

_NAMES = {
    "allocation.plan": ("plan",),
    "allocation.quotas": ("Allocation", "allocate", "apportion"),
    "allocation.stability": ("Stability", "WhatIf", "stability", "what_if"),
    "allocation.utility_factors": ("utilities",),
    "errors": ("CalibudgetError",),
    "pipeline.run": ("RunResult", "run"),
    "pipeline.score": ("score",),
    "pipeline.verify": ("Verification", "verify"),
    "recipe.load": ("load_recipe",),
    "recipe.schema": ("Recipe",),
    "records": ("AllocationPlan", "Exponents", "Score", "Statistics"),
    "selection.draw": ("canonical_selected_indices_sha256",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

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


def __getattr__(name: str) -> object:
    """A public name, whose module is imported when it is first asked for (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and no others."""
    return __all__

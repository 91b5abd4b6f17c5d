"""What each candidate would do for each calibration subgroup: single examples' gradients, sketched and compared.

Names are loaded on first use, so importing this package imports neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.influence.config import WARM_UP, InfluenceConfig
    from calibudget.influence.gradients import ExampleGradients
    from calibudget.influence.scorer import InfluenceScorer
    from calibudget.influence.similarity import Similarities, Sketches, SketchTable

_HOMES = {
    "WARM_UP": "config",
    "InfluenceConfig": "config",
    "ExampleGradients": "gradients",
    "InfluenceScorer": "scorer",
    "Similarities": "similarity",
    "SketchTable": "similarity",
    "Sketches": "similarity",
}

__all__ = [
    "WARM_UP",
    "ExampleGradients",
    "InfluenceConfig",
    "InfluenceScorer",
    "Similarities",
    "SketchTable",
    "Sketches",
]

__getattr__ = on_first_use(__name__, _HOMES)

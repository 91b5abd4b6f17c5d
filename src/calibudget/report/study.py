"""What the report of a study shows: its tables, its figures and the boundary of its claims, as the study makes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibudget.errors import ArtefactError
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.study.freeze import FROZEN_NAME
from calibudget.study.reporting.report import figures_of, standing_of, tables_of
from calibudget.study.reporting.results import load_results
from calibudget.study.reporting.table import Quantity, shown_text


def study_facts(directory: Path, *, partial: bool) -> Mapping[str, Any]:
    """Gather what the report of a study shows.

    Raises:
        ArtefactError, StudyError: it is no study's directory, or its cells can't be used, see `load_results`.
        DependencyError: scipy or matplotlib isn't installed.
    """
    if not (directory / FROZEN_NAME).exists():
        raise ArtefactError(f"{directory}: is no run directory (no {RECIPE_NAME}) and no study's (no {FROZEN_NAME})")
    results = load_results(directory, partial=partial)
    figures = {
        name: f"data:image/svg+xml;base64,{base64.b64encode(files['svg']).decode()}"
        for name, files in figures_of(results)
    }
    return {
        "protocol": results.protocol,
        "standings": list(standing_of(results)),
        "missing": len(results.missing),
        "tables": list(tables_of(results)),
        "figures": figures,
        "shown": shown_text,
        "is_quantity": lambda entry: isinstance(entry, Quantity),
    }

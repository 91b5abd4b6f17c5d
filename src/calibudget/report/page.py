"""Pages from templates: texts escaped, style and script inside, and a rule by which nothing else may run or load."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from calibudget.errors import ArtefactError, DependencyError
from calibudget.pipeline.explain import digits
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.report.run import run_facts
from calibudget.store.files import write_atomic
from calibudget.store.sums import REPORT_NAME

_TEMPLATES: Final = Path(__file__).parent / "templates"


def write_report(
    directory: str | Path,
    *,
    output: str | Path | None = None,
    data_dir: str | Path | None = None,
    partial: bool = False,
    progress: Progress = silent,
) -> Path:
    """Write one HTML file that shows a run or a study.

    Args:
        directory: a run directory, finished or not, whole or not (the report says so), or a study's directory.
        output: the file; `report.html` in the directory by default.
        data_dir: where a run's sources lie: their texts are then shown with the calibration records.
        partial: show a study although cells are missing, and say so.
        progress: told how far reading the sources is.

    Returns:
        The file's path.

    Raises:
        ArtefactError: it is neither a run directory nor a study's.
        InputError: the sources can't be read.
        DependencyError: an extra isn't installed.
    """
    place = Path(directory)
    if not place.is_dir():
        raise ArtefactError(f"{place}: no such directory")
    if (place / RECIPE_NAME).exists():
        facts: Mapping[str, Any] = {"run": run_facts(place, None if data_dir is None else Path(data_dir), progress)}
        data = page("run.html", facts)
    else:
        data = page("study.html", _study_facts(place, partial=partial))
    path = place / REPORT_NAME if output is None else Path(output)
    write_atomic(path, data)
    return path


def page(template: str, facts: Mapping[str, Any]) -> bytes:
    """A page as UTF-8; whatever its facts hold is text in it.

    Raises:
        DependencyError: jinja2 isn't installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise DependencyError("reports need jinja2; install: pip install 'calibudget[report]'") from error
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"n": lambda value: "" if value is None else digits(value, 4), "digits": digits}
    style, script = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    text = environment.get_template(template).render(facts, style=style, script=script, script_digest=digest)
    return text.encode("utf-8", "replace")  # a text may hold half a surrogate pair


def _study_facts(directory: Path, *, partial: bool) -> Mapping[str, Any]:
    """Gather what the report of a study shows: its tables, its figures and the boundary of its claims.

    Raises:
        ArtefactError, StudyError: it is no study's directory, or its cells can't be used, see `load_results`.
        DependencyError: scipy or matplotlib isn't installed.
    """
    # what draws the figures takes a second to import
    from calibudget.study.freeze import FROZEN_NAME
    from calibudget.study.reporting.report import figures_of, standing_of, tables_of
    from calibudget.study.reporting.results import load_results
    from calibudget.study.reporting.table import Quantity, shown_text

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

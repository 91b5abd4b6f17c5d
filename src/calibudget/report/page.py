"""Pages from templates: texts escaped, style and script inside, and a rule by which nothing else may run or load."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from calibudget.errors import requires
from calibudget.pipeline.explain import digits
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.run_directory import check_no_run
from calibudget.report.run import run_facts
from calibudget.store.checksums import REPORT_NAME
from calibudget.store.files import resolved, write_atomic

_TEMPLATES: Final = Path(__file__).parent / "templates"


def write_report(
    run_dir: Path, *, output: Path | None = None, data_dir: Path | None = None, progress: Progress = silent
) -> Path:
    """Write one HTML file that shows a run, finished or not, whole or not; its path is returned.

    It is `report.html` in the directory, unless another `output` is named. With `data_dir`, where the run's sources
    lie, their texts are shown with the calibration records.

    Raises:
        InputError: the sources can't be read.
        DependencyError: an extra isn't installed.
    """
    return write_page("run.html", {"run": run_facts(run_dir, data_dir, progress)}, run_dir, output)


def write_page(template: str, facts: Mapping[str, Any], directory: Path, output: Path | None) -> Path:
    """Write the page of a directory, see `page`; its path is returned. No other run's takes it (ArtefactError)."""
    own = directory / REPORT_NAME
    path = output or own
    if resolved(path) != resolved(own):
        check_no_run(path.parent)
    write_atomic(path, page(template, facts))
    return path


def page(template: str, facts: Mapping[str, Any]) -> bytes:
    """A page as UTF-8; whatever its facts hold is text in it.

    Raises:
        DependencyError: jinja2 isn't installed.
    """
    with requires("a report", "report"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
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

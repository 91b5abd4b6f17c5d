"""`calibudget study report`: every table and figure of a study, in a folder of its own.

report.md                 all tables in one text, the boundary of claims first
tables/<name>.{md,tex,csv}
figures/<name>.{svg,pdf,png}
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from calibudget.pipeline.run_directory import check_no_run
from calibudget.store.artefacts import ALLOCATION, STATISTICS
from calibudget.store.files import clean_stale, output_directory, refuse_links, write_atomic
from calibudget.study.cell_records import RUN_NAME
from calibudget.study.reporting import figures
from calibudget.study.reporting.certainty import claims_table, intervals_table
from calibudget.study.reporting.claim_boundary import boundary_table
from calibudget.study.reporting.paired_differences import (
    contrasts_table,
    paired_table,
    points_table,
    scores_table,
    tasks_table,
    variants_table,
)
from calibudget.study.reporting.quota_movement import moved_table, quotas_table, stability_table
from calibudget.study.reporting.results import Block, Results, load_results
from calibudget.study.reporting.table import Quantity, Shown, Table, shown_text, to_csv, to_latex, to_markdown

REPORT_NAME: Final = "report"


def write_report(directory: Path, *, output: Path | None = None, partial: bool = False) -> Path:
    """Write a study's report into `output`, or `report/` in its directory; the path of `report.md` is returned.

    A `partial` one is written although cells are missing, and says so.

    Raises:
        ArtefactError, StudyError: the cells can't be used, see `load_results`.
        DependencyError: scipy or matplotlib isn't installed.
    """
    target = output or directory / REPORT_NAME
    check_no_run(target)
    results = load_results(directory, partial=partial)
    if output is None:
        refuse_links(target)
    with output_directory(target):
        for folder in (target / "tables", target / "figures"):
            refuse_links(folder)
            folder.mkdir(exist_ok=True)
            clean_stale(folder)
        tables = list(tables_of(results))
        for table in tables:
            for ending, show in (("md", to_markdown), ("tex", to_latex), ("csv", to_csv)):
                write_atomic(target / "tables" / f"{table.name}.{ending}", show(table).encode("utf-8"))
        drawn = []
        for name, files in figures_of(results):
            drawn.append(name)
            for ending, data in files.items():
                write_atomic(target / "figures" / f"{name}.{ending}", data)
        write_atomic(target / "report.md", _text(results, tables, drawn).encode("utf-8"))
    return target / "report.md"


def page_facts(directory: Path, *, partial: bool) -> dict[str, Any]:
    """What the page of a study shows: its tables, its figures and the boundary of its claims.

    Raises:
        ArtefactError, StudyError: the cells can't be used, see `load_results`.
        DependencyError: scipy or matplotlib isn't installed.
    """
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


def tables_of(results: Results) -> Iterator[Table]:
    """Every table, in the order of the report."""
    yield boundary_table(results)
    yield claims_table(results)
    yield points_table(results)
    for block in results.blocks():
        yield from _tables_of_block(block)
    yield stability_table(results)
    yield cells_table(results)


def _tables_of_block(block: Block) -> Iterator[Table]:
    both = block.is_compared
    if block.definition.train:
        yield scores_table(block)
        if both:
            yield paired_table(block)
            yield intervals_table(block)
            yield tasks_table(block)
        if block.focus in block.policies and len(block.policies) > 1:
            yield contrasts_table(block)
        variants = variants_table(block) if both and block.status == "confirmatory" else None
        if variants is not None:
            yield variants
    if both:
        yield moved_table(block)
        yield quotas_table(block)


def cells_table(results: Results) -> Table:
    """What was run: cells and seconds by point and backbone, and what is missing."""
    places = Counter((cell.point, cell.backbone) for cell in (*results.results, *results.missing, *results.stopped))
    rows: list[tuple[Shown, ...]] = []
    for point, backbone in places:
        here = [one for cell, one in results.results.items() if (cell.point, cell.backbone) == (point, backbone)]
        seconds = [sum(one.seconds.values()) for one in here]
        left = [
            sum((c.point, c.backbone) == (point, backbone) for c in some) for some in (results.missing, results.stopped)
        ]
        mean = Quantity(value=fmean(seconds) if seconds else None, digits=1)
        rows.append((point, backbone, len(here), *left, mean, Quantity(value=sum(seconds) / 3600, digits=3)))
    environments = sorted({value for one in results.results.values() for value in one.environment.items()})
    return Table(
        name="cells",
        title="Cells",
        columns=("point", "backbone", "finished", "missing", "stopped", "seconds a cell", "hours"),
        rows=tuple(rows),
        notes=(
            *(f"Missing: {cell.name}: {why}." for cell, why in results.missing.items()),
            f"Made with: {', '.join(f'{name} {value}' for name, value in environments)}.",
        ),
    )


def figures_of(results: Results) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Every figure: its name, and its bytes by format."""
    for block in results.blocks():
        if not block.is_compared:
            continue
        if block.definition.train:
            yield f"diagnostics-{block.key}", figures.diagnostics_figure(block)
        folder = results.folders.get(block.result(block.focus, block.seeds[0]).cell)
        plan = None if folder is None else ALLOCATION.of(folder / RUN_NAME)
        if folder is not None and plan is not None:
            yield f"overview-{block.key}", figures.overview_figure(plan, STATISTICS.of(folder / RUN_NAME))


def standing_of(results: Results) -> Iterator[str]:
    """Which results count how, in sentences."""
    confirmatory = [name for name, status in results.statuses.items() if status == "confirmatory"]
    yield (
        f"Confirmatory: {', '.join(confirmatory) or 'nothing'}. Everything else is exploratory: it describes, and "
        "selects no method."
    )
    for block in results.planned_blocks():
        if block.status == "confirmatory" and not block.final:
            yield f"Interim: {block.place}: {block.seeds_counted}; no claim is judged before all are there."


def _text(results: Results, tables: list[Table], drawn: list[str]) -> str:
    protocol = results.protocol
    standings = [f"{sentence}\n" for sentence in standing_of(results)]
    lines = [f"# {protocol.name}", "", *([protocol.question, ""] if protocol.question else []), *standings]
    shown = [f"![{name}](figures/{name}.svg)\n" for name in drawn]
    return "\n".join([*lines, *map(to_markdown, tables), *shown])

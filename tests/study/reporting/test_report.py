"""A whole report from made-up cells: files, refusals, and the same bytes again."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from calibudget.errors import StudyError
from calibudget.report.page import write_page
from calibudget.study.protocol import load_protocol
from calibudget.study.reporting.report import page_facts, standing_of, tables_of, write_report
from calibudget.study.reporting.results import load_results
from calibudget.study.reporting.table import to_markdown
from calibudget.study.run import freeze_study, run_study
from tests.report.conftest import Page
from tests.study.conftest import MadeUpRunner, write_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study and its report; to be copied, never changed."""
    protocol = write_study(tmp_path_factory.mktemp("reported") / "small")
    directory = protocol.parent / "study"
    freeze_study(load_protocol(protocol), directory)
    run_study(load_protocol(protocol), directory, runner=MadeUpRunner())
    write_report(directory)
    return directory


@pytest.fixture
def finished(reported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(reported, tmp_path / "study", ignore=shutil.ignore_patterns("report"))


def test_a_report_holds_every_table_and_figure_and_is_the_same_again(
    reported: Path, finished: Path, tmp_path: Path
) -> None:
    report = reported / "report" / "report.md"
    text = report.read_text()
    assert "Confirmatory: main." in text
    names = {path.stem for path in (report.parent / "tables").iterdir()}
    assert {
        "boundary",
        "claims",
        "points",
        "stability",
        "cells",
        "scores-main-tiny",
        "intervals-low-floor-tiny",
    } <= names
    assert "scores-splits-tiny" not in names
    for path in (report.parent / "tables").glob("*.md"):
        assert path.read_text() in text
    figures = {path.name for path in (report.parent / "figures").iterdir()}
    assert {f"diagnostics-main-tiny.{ending}" for ending in ("svg", "pdf", "png")} <= figures
    again = write_report(finished, output=tmp_path / "again").parent
    files = [path.relative_to(report.parent) for path in report.parent.rglob("*") if path.suffix not in ("", ".lock")]
    assert files
    for name in files:
        assert (again / name).read_bytes() == (report.parent / name).read_bytes(), name


def test_the_html_report_has_the_numbers_of_all_tables_and_its_figures_inside(reported: Path, finished: Path) -> None:
    page = Page.read(write_page("study.html", page_facts(finished, partial=False), finished, None))
    made = reported / "report"
    expected = [table for table in tables_of(load_results(finished)) if table.rows]
    shown = [rows for rows in page.tables.values() if len(rows) > 1]
    for table, (heads, *rows) in zip(expected, shown, strict=True):
        lines = (made / "tables" / f"{table.name}.md").read_text().splitlines()
        cells = [[cell.strip(" *_") for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
        assert [heads[1], *(row for _, row in rows)] == [cells[0], *cells[2:]]
        assert all(note in page.text for note in table.notes)
    figures = [base64.b64decode(str(own["src"]).split(",")[1]) for tag, own in page.tags if tag == "img"]
    assert figures
    assert sorted(figures) == sorted(path.read_bytes() for path in (made / "figures").glob("*.svg"))


def test_missing_cells_are_refused_or_told(finished: Path) -> None:
    (finished / "cells/main/tiny/equal/43/cell.json").unlink()
    with pytest.raises(StudyError, match=r"1 of 30 cells are missing, the first main/tiny/equal/43 \(not run yet\)"):
        write_report(finished)
    results = load_results(finished, partial=True)
    text = "\n".join([*standing_of(results), *map(to_markdown, tables_of(results))])
    assert "Missing: main/tiny/equal/43: not run yet." in text
    assert "Seed 42 alone" in text
    assert "Interim: main, tiny: 1 of 2 seeds; no claim is judged before all are there." in text
    claim = next(line for line in text.splitlines() if line.startswith("| main") and "Both (pp)" in line)
    assert "| interim: 1 of 2 seeds |" in claim
    assert next(results.blocks()).seeds == (42,)

"""Runs to be reported: one with groups, caps and texts that would like to be scripts, and one of many sources."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest

from calibudget.allocation.bootstrap import summarise
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.pipeline.allocate import compare_policies
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import Verification
from calibudget.recipe.load import load_recipe
from calibudget.records import Score
from calibudget.report.page import page, write_page, write_report
from calibudget.report.run import RunFacts, calibration_of, explained, grid_of
from calibudget.study.protocol import load_protocol
from calibudget.study.reporting.report import page_facts
from calibudget.study.run import freeze_study, run_study
from tests.study.conftest import MadeUpRunner, write_study

#: Each of them sets the page's title if it is ever run.
CANARIES = [
    "<script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "</pre></details><svg onload=document.title='run'>",
    "</script><script>document.title='run'</script>",
    "{{ 7 * 7 }} {% raw %} ${document.title='run'}",
    "\u202eright to left\u202c and an emoji \U0001f9ea",
]
LABEL = 'it\'s "<b>bold<b>" & \U0001f9ea'


def _rows(name: str, count: int) -> Iterator[dict[str, str]]:
    for n in range(count):
        text = CANARIES[n % len(CANARIES)]
        yield {
            "prompt": f"{name} {n}? {text * (40 if n % 7 == 0 else 1)}",
            "completion": f"the correct answer is {'true' if n * n % 7 < 3 else 'false'}",
        }


def make_run(root: Path, sources: dict[str, int], more: str = "", *, budget: int, per_source: int = 30) -> Path:
    answer = 'answer: {kind: choice, labels: ["true", "false"]}'
    lines = []
    for number, (label, count) in enumerate(sources.items()):
        rows = list(_rows(f"source {number}", count))
        (root / f"s{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
        lines.append(f"  {json.dumps(label)}: {{path: s{number}.jsonl, {answer}}}")
    (root / "recipe.yaml").write_text(
        f"engine: fake\nbudget: {budget}\ncalibration: {{per_source: {per_source}, resamples: 20}}\n{more}\n"
        + "sources:\n"
        + "\n".join(lines)
        + "\n"
    )
    return run(load_recipe(root / "recipe.yaml"), root / "run").directory


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    label = json.dumps(LABEL)
    more = (
        f"floor: {{{label}: 12, default: 20}}\ncaps: {{pears: 45}}\n"
        f"groups: {{fruit: {{sources: [apples, pears]}}, 'the \"rest\"': {{sources: [{label}]}}}}"
    )
    return make_run(root, {"apples": 90, "pears": 120, LABEL: 80}, more, budget=120)


@pytest.fixture(scope="session")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of a thousand sources, made from its facts: reading so many files is no matter of the page."""
    random = Random(0)  # noqa: S311
    labels = [f"source-{n:04d}" for n in range(1000)]
    scores = [
        Score(
            source=label,
            record_id=f"{label}-{n}",
            response_tokens=5,
            nll=(nll := random.random() * 4),
            correct=(correct := random.random() < 0.5),
            prediction="true",
            error=nll + (not correct),
        )
        for label in labels
        for n in range(30)
    ]
    sizes = {label: random.randrange(100, 90_000) for label in labels}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        statistics = summarise(scores, sizes, model={}, error="nll+wrong", resamples=20, bootstrap_seed=0)
    request = AllocationRequest(
        policy="calibudget", pool_sizes=sizes, budget=400_000, floor=100, statistics=statistics,
        statistics_sha256="0" * 64, groups={f"g{n}": {"sources": labels[n::10]} for n in range(10)},
    )  # fmt: skip
    made = plan(request)
    calibration, _ = calibration_of(scores, {}, 5.0)
    facts = RunFacts(
        name="large", finished=True, verification=Verification(differences=(), checked=(), levels={}), manifest=None,
        plan=made, statistics=statistics, hygiene=None, sums={}, explanations=explained(made, statistics),
        comparison=compare_policies(request, None), grid=grid_of(made, request, None), calibration=calibration,
        largest_error=5.0, has_texts=False, texts_left_out=0, noticed=(),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_bytes(page("run.html", {"run": facts}))
    return path


@pytest.fixture(scope="session")
def reported(hostile_run: Path) -> Page:
    path = write_report(hostile_run, data_dir=hostile_run.parent)
    return Page.read(path)


@pytest.fixture(scope="session")
def study_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a finished study, whose question would like to be a script."""
    path = write_study(tmp_path_factory.mktemp("study") / "small")
    path.write_text(f"{path.read_text()}question: {json.dumps(CANARIES[0] + CANARIES[2])}\n")
    protocol = load_protocol(path)
    freeze_study(protocol, path.parent / "study")
    run_study(protocol, path.parent / "study", runner=MadeUpRunner())
    facts = page_facts(path.parent / "study", partial=False)
    return write_page("study.html", facts, path.parent / "study", None)


class Page(HTMLParser):
    """A reader of the page that knows nothing of its templates: tables by id, facts, and the data of scripts.

    Attributes:
        tables: by id, rows of (data-source, cells); the heads come first.
        facts: texts by data-fact.
        tags: every tag with its attributes.
        scripts: contents by id; "" is the page's own.
        text: all text outside of scripts and styles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[tuple[str, list[str]]]] = {}
        self.facts: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._add: Callable[[str], None] = self._nowhere
        self._table = ""

    @classmethod
    def read(cls, path: Path) -> Page:
        page = cls()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
        return page

    def column(self, table: str, head: str) -> dict[str, str]:
        """A column by its head: data-source to the cell's text."""
        place = self.tables[table][0][1].index(head)
        return {source: cells[place] for source, cells in self.tables[table] if source}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append((tag, own))
        if tag == "table":
            self._table = own.get("id") or f"table {len(self.tables)}"
            self.tables[self._table] = []
        elif tag == "tr":
            self.tables[self._table].append((own.get("data-source") or "", []))
        elif tag in ("td", "th"):
            cells = self.tables[self._table][-1][1]
            cells.append("")
            self._add = lambda text: cells.__setitem__(-1, (cells[-1] + text).strip())
        elif "data-fact" in own:
            name = str(own["data-fact"])
            self._add = lambda text: self.facts.__setitem__(name, text)
        elif tag in ("script", "style"):
            name = own.get("id") or ("" if tag == "script" else "style")
            self._add = lambda text: self.scripts.__setitem__(name, text)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("table", "dd", "script", "style", "thead", "tbody"):
            self._add = self._nowhere

    def handle_data(self, data: str) -> None:
        self._add(data)
        if self._add == self._nowhere or self._table:
            self.text += data

    @staticmethod
    def _nowhere(text: str) -> None:
        pass


def shown(value: Any) -> str:
    """A number as the report shows it, by its own rule."""
    if value is None:
        return ""
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.4g}"

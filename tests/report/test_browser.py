"""Reports in a browser: from a file, without a network, by keyboard, in the dark, on paper, narrow and wide."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import LABEL, Page

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright to drive a browser with")


from tools.report_images import IMAGES, draw  # noqa: E402 - needs playwright


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, the one that CHROMIUM names, or playwright's own."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=found, timeout=0)
        except playwright.Error as error:
            pytest.skip(f"no Chromium that starts: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page from its file; when the test ends nothing was logged as an error, and nothing was asked for."""
    noise: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(path: Path, **settings: Any) -> Any:
        context = browser.new_context(**settings)
        context.set_default_timeout(0)  # the test's own time is the bound
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert noise == []
    assert [url for url in asked if not url.startswith(("file:///", "data:"))] == []


@pytest.fixture
def report(hostile_run: Path, reported: Page) -> Path:
    return hostile_run / "report.html"


def test_no_text_of_the_data_is_run(opened: Any, report: Path) -> None:
    page = opened(report)
    for details in page.locator("details").all():
        details.evaluate("one => one.open = true")
    assert page.title() == "run - CaliBudget report"
    assert page.locator("img, iframe, pre svg").count() == 0
    assert page.locator("#quota-table th[scope=row]").all_inner_texts() == ["apples", LABEL, "pears", "all"]


def test_a_script_that_got_in_would_not_run(browser: Any, report: Path, tmp_path: Path) -> None:
    """The page's own rule is a second wall behind the escaping; without it the same script does run."""
    text = report.read_text(encoding="utf-8").replace("<main", "<script>document.title='run'</script><main", 1)
    for name, rule, title in (("walled", True, "run - CaliBudget report"), ("open", False, "run")):
        path = tmp_path / f"{name}.html"
        path.write_text(text if rule else text.replace("Content-Security-Policy", "x"), encoding="utf-8")
        page = browser.new_page()
        page.goto(path.as_uri(), timeout=0)
        assert page.title() == title
        page.close()


def test_the_sliders_go_through_the_stored_points_by_keyboard(opened: Any, report: Path) -> None:
    page = opened(report)
    grid = json.loads(page.locator("#grid").text_content())
    floors = len(grid["floors"])

    def quotas() -> list[str]:
        return [str(text) for text in page.locator("#whatif-table td.main").all_inner_texts()]

    b, f = grid["asked"]
    assert quotas() == [f"{quota:,}" for quota in grid["points"][b * floors + f]["quotas"]]
    page.locator("#i-floor").focus()
    page.keyboard.press("Home")
    assert quotas() == [f"{quota:,}" for quota in grid["points"][b * floors]["quotas"]]
    assert page.locator("#i-floor").get_attribute("aria-valuetext") == f"{grid['floors'][0]:,}"
    page.locator("#i-budget").focus()
    page.keyboard.press("Home")
    page.locator("#i-floor").focus()
    page.keyboard.press("End")
    refused = grid["points"][floors - 1]
    assert refused["quotas"] is None
    assert page.locator("#said").inner_text() == f"This can't be met: {refused['refusal']}"
    assert quotas() == [""] * len(grid["labels"])
    page.locator("#asked").click()
    assert quotas() == [f"{quota:,}" for quota in grid["points"][b * floors + f]["quotas"]]


def test_a_thousand_sources_are_sorted_filtered_and_grouped(opened: Any, large_page: Path) -> None:
    page = opened(large_page)
    assert page.evaluate("document.documentElement.scrollHeight") < 10_000

    def column(place: int) -> list[str]:
        return page.eval_on_selector_all(  # type: ignore[no-any-return]
            "#quota-table tbody tr:not([hidden])", f"rows => rows.map(row => row.cells[{place}].textContent.trim())"
        )

    heads = page.locator("#quota-table thead th").all_inner_texts()
    head = page.locator("#quota-table thead th").nth(heads.index("quota"))
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    found = [int(text.replace(",", "")) for text in column(heads.index("quota"))]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 50
    page.get_by_label("Keep groups together").check()
    groups = column(1)
    assert groups == sorted(groups)
    page.get_by_label("Filter sources").fill("source-07")
    assert len(column(0)) == 100
    assert page.locator("#left").inner_text() == "100 of 1,000 sources"


def test_the_pictures_of_the_docs_are_made_from_a_report(browser: Any, report: Path, tmp_path: Path) -> None:
    draw(browser, report, tmp_path)
    for name in ("report.png", "report-whatif.png"):
        made, committed = ((folder / name).read_bytes() for folder in (tmp_path, IMAGES))
        assert made[:8] == committed[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(made[16:20]) == int.from_bytes(committed[16:20])
        assert len(made) > 20_000


def test_a_link_opens_its_source_and_paper_shows_all(opened: Any, report: Path, tmp_path: Path) -> None:
    page = opened(report)
    page.locator("#quota-table a").first.click()
    assert page.locator("details.source[open]").count() == 1
    page.pdf(path=str(tmp_path / "report.pdf"), prefer_css_page_size=True)
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    assert page.locator("details.source[open]").count() == 1
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.source[open]").count() == 3
    assert page.locator(".tools").first.is_hidden()


def test_dark_and_light_follow_the_system(opened: Any, report: Path) -> None:
    colours = [
        opened(report, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    light, dark = (sum(map(int, colour[4:-1].split(","))) for colour in colours)
    assert light > 600
    assert dark < 150


def test_a_study_is_read_by_keyboard_and_on_paper(opened: Any, study_page: Path, tmp_path: Path) -> None:
    page = opened(study_page)
    assert page.title() == "small - CaliBudget report"
    assert "<script>" in page.locator("header .lead").first.inner_text()
    table = page.locator("table.sortable").first
    rows, head = table.locator("tbody th"), table.locator("thead th").first
    names = rows.all_inner_texts()
    head.locator("button").focus()
    for turn in (0, 1):
        page.keyboard.press("Enter")
        assert rows.all_inner_texts() == sorted(names, reverse=head.get_attribute("aria-sort") == "descending"), turn
    page.locator("nav summary").click()
    for link in page.locator("nav a").all():
        assert page.locator(str(link.get_attribute("href"))).count() == 1
    assert all(page.locator("#figures img").evaluate_all("all => all.map(one => one.naturalWidth > 100)"))
    page.pdf(path=str(tmp_path / "study.pdf"), prefer_css_page_size=True)
    assert (tmp_path / "study.pdf").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("shown", "width", "scheme"),
    [(page, *how) for page in ("run", "study") for how in ((360, "dark"), (1440, "light"))],
)
def test_axe_finds_nothing_serious_and_nothing_overflows(
    opened: Any, request: pytest.FixtureRequest, shown: str, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core to judge pages with")
    path = request.getfixturevalue("report" if shown == "run" else "study_page")
    page = opened(path, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
    assert serious == []

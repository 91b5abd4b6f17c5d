"""The pictures of a report in the docs: `python tools/report_images.py RUN_DIR`, with the run that README shows."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from calibudget.report.page import write_report

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def draw(browser: Browser, page: Path, images: Path) -> None:
    """Photograph the head of a page, light, and its sliders at a lower floor, dark."""
    light = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    light.goto(page.as_uri())
    light.screenshot(path=images / "report.png")
    dark = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    dark.goto(page.as_uri())
    dark.locator("#i-floor").fill("1")
    dark.locator("#whatif").screenshot(path=images / "report-whatif.png")


if __name__ == "__main__":
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"))
        draw(started, write_report(Path(sys.argv[1]), output=Path(folder) / "report.html"), IMAGES)

"""docs/architecture.md names files and rooms that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_path_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]*)+(?:\.py)?|keys\.py|errors\.py)`", page)
    named = [path for path in paths if not path.startswith(("testbed", "src", "docs", "tools", "benchmarks"))]
    assert len(named) > 30
    package = ROOT / "src" / "calibudget"
    assert [path for path in named if not (package / path).exists()] == []

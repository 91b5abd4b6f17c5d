"""docs/paper.md: what it says implements a sentence of the paper exists, and its rows are numbered through."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/paper.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)


def resolve(name: str) -> object:
    parts = ["calibudget", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)


def test_rows_are_numbered_through() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) >= 70


def test_what_implements_it_exists() -> None:
    for row in ROWS:
        names = re.findall(r"`([^`]+)`", re.sub(r"\(.*?\)", "", row[3]))  # in brackets stand fields
        assert names, row
        for name in names:
            if "/" in name:
                assert (ROOT / name).exists(), row
            else:
                resolve(name)

import re
from pathlib import Path

import pytest

import calibudget
from calibudget.wording import counted


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_000_000, "1,000,000 records")],
)
def test_the_noun_follows_the_number(number: int, told: str) -> None:
    assert counted(number, "record") == told


def test_a_plural_of_its_own() -> None:
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(3, "entry", "entries") == "3 entries"


@pytest.mark.parametrize("module", ["pipeline/notes.py", "pipeline/preparing.py", "cli/tables.py", "cli/grids.py"])
def test_what_runs_tell_leaves_no_number_to_the_reader(module: str) -> None:
    """No "record(s)", and no plural after a number that a format string puts in: that is what `counted` is for."""
    nouns = "record|duplicate|candidate|example|row|source|token|calibration split|difference"
    text = (Path(calibudget.__file__).parent / module).read_text(encoding="utf-8")
    assert re.findall(rf"\{{[^{{}}]+\}} (?:[a-z]+ )?(?:{nouns})(?:s|\(s\))\b.*", text) == []

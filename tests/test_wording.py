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


def test_no_message_leaves_the_number_to_the_reader() -> None:
    """No "record(s)", and no plural after a number that a format string puts in: that is what `counted` is for."""
    nouns = "record|duplicate|candidate|example|row|column|cell|step|pick|subgroup|worker|calibration split"
    # Constants above 1.
    allowed = {"{FEW_RECORDS}", "{_ATTEMPTS}"}
    hits = []
    for path in Path(calibudget.__file__).parent.rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            found = [m[1] for m in re.finditer(rf"(\{{[^{{}}]+\}}) (?:[a-z]+ )?(?:{nouns})s\b", line)]
            hits += [(path.name, line) for one in found if one not in allowed]
            hits += [(path.name, line)] if re.search(r"[a-z]\(s\)", line) else []
    assert hits == []

import pytest

from calibudget.errors import DependencyError, requires
from calibudget.messages import counted, fault, printable


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_000_000, "1,000,000 records")],
)
def test_the_noun_follows_the_number(number: int, told: str) -> None:
    assert counted(number, "record") == told


def test_a_plural_of_its_own() -> None:
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(3, "entry", "entries") == "3 entries"


def test_faults_of_fields_are_told_with_their_numbers() -> None:
    assert fault("too_short", {"field_type": "Tuple", "min_length": 2, "actual_length": 1}) == (
        "holds 1 and needs 2 or more"
    )
    assert fault("less_than", {"lt": 3}) == "must be below 3"
    assert fault("int_type", {}) == "must be an integer"
    assert fault("extra_forbidden", {}) == "is not a field of this format"


def test_a_line_for_people_holds_no_word_of_a_million_characters() -> None:
    path = "/a" * 500
    assert printable(f"record {'x' * 1_000_000} in {path} not\x1b[2J") == f"record {'x' * 997}... in {path} not\\x1b[2J"


def test_a_package_of_another_version_is_told_in_its_own_words() -> None:
    told = r"^training needs b>=2, found 1; install: pip install 'calibudget\[train\]'$"
    with pytest.raises(DependencyError, match=told), requires("training", "train"):
        raise ImportError("b>=2, found 1")

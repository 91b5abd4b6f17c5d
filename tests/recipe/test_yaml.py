import pytest

from calibudget.errors import RecipeError
from calibudget.recipe.yaml import parse_assignment, parse_document


def test_plain_scalars_follow_yaml_1_2() -> None:
    text = "a: no\nb: 010\nc: 1:30\nd: 1e4\ne: 10_000\nf: 2026-01-01\ng: 0x10\nh: 1O\ni: true\nj: ~\nk: .5"
    value = parse_document(text, "recipe.yaml").value
    assert value == {
        "a": "no", "b": "010", "c": "1:30", "d": 10000.0, "e": 10000, "f": "2026-01-01", "g": "0x10", "h": "1O",
        "i": True, "j": None, "k": 0.5,
    }  # fmt: skip
    assert isinstance(value["d"], float)


def test_lines_are_kept_for_keys_and_items() -> None:
    document = parse_document("a: 1\nb:\n  c:\n    - x\n    - y\n", "recipe.yaml")
    assert document.where(("b", "c", 1)) == "recipe.yaml:5"
    assert document.where(("b", "c", "missing")) == "recipe.yaml:3"
    assert document.where(("nowhere",)) == "recipe.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "recipe.yaml:2: duplicate key 'a' (first on line 1)"),
        ("a: {b: 1, b: 2}", "recipe.yaml:1: duplicate key 'b'"),
        ("a: &x 1\nb: *x", "recipe.yaml:2: aliases"),
        ("- 1", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: [", "recipe.yaml:1: not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("true: 1", "recipe.yaml:1: the key 'true' isn't text"),
        ("1: 2", "the key '1' isn't text"),
    ],
)
def test_refusals_name_the_line(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        parse_document(text, "recipe.yaml")
    assert message in str(refusal.value)


def test_a_value_on_its_own() -> None:
    assert parse_assignment("a=50", "override") == ("a", 50)
    assert parse_assignment("a={tokens: 5}", "override") == ("a", {"tokens": 5})
    assert parse_assignment("a=a/b", "override") == ("a", "a/b")

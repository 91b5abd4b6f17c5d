"""Labels as people have them: with spaces, with emoji, in a recipe as on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.cli.options import amount, by_label, sizes_by_label, weights_by_label
from calibudget.errors import InputError
from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("name", ["recipe.json", "recipe.yaml"])
def test_a_character_beyond_the_plane_is_one_however_it_is_written(tmp_path: Path, name: str, escaped: bool) -> None:
    fields = {"policy": "equal", "budget": 1, "calibration": "none", "sources": {"fun \U0001f600": {"path": "a.jsonl"}}}
    (tmp_path / name).write_text(json.dumps(fields, ensure_ascii=escaped), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"instruction":"q","output":"a"}\n')
    assert run(load_recipe(tmp_path / name), tmp_path / "out").plan.quotas == {"fun \U0001f600": 1}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Open Orca=100"], {"Open Orca": 100}),
        (["Open Orca=100 b=2  c d e=3"], {"Open Orca": 100, "b": 2, "c d e": 3}),
        (["Open Orca=100", "b=2"], {"Open Orca": 100, "b": 2}),
        (["a=b=3"], {"a=b": 3}),
        (["\U0001f600 x=3"], {"\U0001f600 x": 3}),
    ],
)
def test_labels_with_spaces_work_on_the_command_line(texts: list[str], expected: dict[str, int]) -> None:
    assert by_label(texts, "--sizes", int, "an integer") == expected
    assert weights_by_label(texts) == expected
    assert by_label(texts, "--floors", amount, "an amount") == expected
    assert sizes_by_label(texts) == expected


def test_amounts_may_be_shares_beside_labels_with_spaces() -> None:
    found = by_label(["Open Orca=5% of budget b c=10 % of pool d=3"], "--caps", amount, "an amount")
    assert found == {"Open Orca": "5% of budget", "b c": "10 % of pool", "d": 3}


@pytest.mark.parametrize("text", ["a=1,b=2", "a=1, b=2", "a=5%,b=2"])
def test_pairs_parted_by_commas_are_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(InputError, match=r"part them by spaces: a=\S+ b=2$"):
        by_label([text], "--floors", amount, "an amount")


@pytest.mark.parametrize("text", ["Open Orca", "a=1 b", "=3", "a=1 =2", ""])
def test_a_text_that_is_no_pair_is_refused_and_says_how_an_option_repeats(text: str) -> None:
    with pytest.raises(InputError, match=r"--sizes .*write label=number; several as a=1 b=2"):
        by_label([text], "--sizes", int, "an integer")

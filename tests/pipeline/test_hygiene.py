"""What a recipe's hygiene does with prompts of evaluation sets and with records that two sources hold."""

import json

import pytest

from calibudget.errors import DataError
from calibudget.pipeline import run, verify
from calibudget.recipe import load_recipe


def manifest(directory):
    return json.loads((directory / "manifest.json").read_text())["sources"]


@pytest.fixture
def exam(tmp_path, make_recipe):
    """A recipe, and an evaluation set with three prompts of boolq (in another case) and one of piqa."""
    path = make_recipe()
    prompts = [*(f"BOOLQ question {n}?" for n in (4, 9, 11)), "piqa  question 7?", "another?"]
    rows = [json.dumps({"instruction": prompt, "output": "true"}) + "\n" for prompt in prompts]
    (tmp_path / "data" / "exam.jsonl").write_text("".join(rows))
    return path


EXAM = "hygiene.evaluation={exam: {path: exam.jsonl, answer: none}}"


def test_prompts_of_an_evaluation_set_leave_the_sources_and_are_counted(exam, tmp_path) -> None:
    result = run(load_recipe(exam, [EXAM]), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().splitlines()]
    prompts = {row["prompt"] for row in rows}
    assert not prompts & {"boolq question 4?", "boolq question 9?", "boolq question 11?", "piqa question 7?"}
    sources = manifest(tmp_path / "run")
    assert (sources["boolq"]["barred"], sources["piqa"]["barred"]) == (3, 1)
    assert sources["boolq"]["pool_size"] == 30 - 5 - 3
    assert any("boolq: 3 duplicates, 3 records of an evaluation set" in note for note in result.notes)
    assert not verify(tmp_path / "run", data_dir=tmp_path / "data").differences


def test_they_may_be_kept_and_are_told_or_refused_by_their_line(exam, tmp_path) -> None:
    recipe = load_recipe(exam, [EXAM, "hygiene.evaluation_prompts=keep", "calibration.per_source=2"])
    result = run(recipe, tmp_path / "run")
    assert manifest(tmp_path / "run")["boolq"]["barred"] == 0
    assert any("also in the evaluation set exam" in note for note in result.notes)
    with pytest.raises(
        DataError, match=r"source 'boolq': boolq\.jsonl:5 has a prompt of the evaluation set 'exam'.* 2 oth"
    ):
        run(load_recipe(exam, [EXAM, "hygiene.evaluation_prompts=refuse"]), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_record_of_two_sources_stays_in_the_first_or_is_refused(make_recipe, tmp_path) -> None:
    recipe = make_recipe()
    twin = (tmp_path / "data" / "boolq.jsonl").read_text().splitlines()[8]
    with (tmp_path / "data" / "piqa.jsonl").open("a") as handle:
        handle.write(twin + "\n")
    run(load_recipe(recipe), tmp_path / "kept")
    assert manifest(tmp_path / "kept")["piqa"]["pool_size"] == 40 + 1 - 5
    run(load_recipe(recipe, ["hygiene.cross_source=drop"]), tmp_path / "dropped")
    dropped = manifest(tmp_path / "dropped")
    assert (dropped["boolq"]["barred"], dropped["piqa"]["barred"]) == (0, 1)
    assert not verify(tmp_path / "dropped", data_dir=tmp_path / "data").differences
    with pytest.raises(DataError, match="sources 'boolq' and 'piqa' both hold the record"):
        run(load_recipe(recipe, ["hygiene.cross_source=refuse"]), tmp_path / "refused")

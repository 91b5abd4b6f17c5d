"""Prompts are enough for an evaluation set of the hygiene."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import datasets
import pytest

from calibudget.errors import DataError, RecipeError
from calibudget.evaluation.benchmarks import own_benchmark
from calibudget.pipeline.run import run
from calibudget.pipeline.user_tasks import own_source
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.sources.files import find_files
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source

RECIPE = """
policy: equal
budget: 3
calibration: none
hygiene: {evaluation: {bench: {path: e.jsonl}}}
sources: {a: {path: a.jsonl}}
"""


def write(folder: Path, *rows: object) -> Path:
    (folder / "recipe.yaml").write_text(RECIPE)
    sources = [{"instruction": f"q{number}", "output": f"a{number}"} for number in range(5)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sources))
    (folder / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "recipe.yaml"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q1"},
        {"prompt": "q1", "completion": ""},
        {"question": "q1", "answer": None, "choices": ["x", "y"]},
        {"messages": [{"role": "user", "content": "q1"}]},
        {"messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a", "weight": 0}]},
        {"prompt": [{"role": "user", "content": "q1"}]},
        {"prompt": "q1", "completion": "other", "label": False, "reasoning": "r", "split": "test"},
    ],
)
def test_prompts_suffice(tmp_path: Path, row: object) -> None:
    recipe = load_recipe(write(tmp_path, row, {"question": "zzz"}))
    result = run(recipe, tmp_path / "out")
    prompts = {json.loads(line)["prompt"] for line in result.train_file.read_text().splitlines()}
    assert len(prompts) == 3
    assert "q1" not in prompts
    assert not verify(tmp_path / "out", data_dir=tmp_path).differences


CHOICES = {"text": ["x", "y"], "label": ["A", "B"]}
NUMBERED = {"text": ["x", "y"], "label": ["1", "2"]}


@pytest.mark.parametrize(
    ("preset", "row", "gold"),
    [
        ("piqa", {"goal": "g", "sol1": "s", "sol2": "t", "label": -1}, {"label": 1}),
        ("piqa", {"goal": "g", "sol1": "s", "sol2": "t"}, {"label": 0}),
        ("social_i_qa", {"context": "c", "question": "q", "answerA": "x", "answerB": "y", "answerC": "z", "label": ""},
         {"label": "3"}),
        ("hellaswag", {"ctx": "c", "endings": ["w", "x", "y", "z"], "label": ""}, {"label": 3}),
        ("winogrande", {"sentence": "s _", "option1": "o", "option2": "p", "answer": ""}, {"answer": "2"}),
        ("boolq", {"question": "q"}, {"answer": False}),
        ("arc_easy", {"question": "q", "choices": CHOICES, "answerKey": ""}, {"answerKey": "B"}),
        ("openbookqa", {"question_stem": "q", "choices": NUMBERED}, {"answerKey": "2"}),
        ("gsm8k", {"question": "q"}, {"answer": "so #### 7"}),
        ("math", {"problem": "q", "level": "1"}, {"solution": "so $\\boxed{7}$"}),
        ("arc_easy", {"instruction": "q", "input": "", "output": ""}, {"output": "the correct answer is answer2"}),
    ],
)  # fmt: skip
def test_the_prompt_of_a_preset_is_that_of_a_row_whose_answer_is_hidden(
    tmp_path: Path, preset: str, row: dict[str, object], gold: dict[str, object]
) -> None:
    found: list[Any] = []
    for fields, suffices in ((row, True), (row | gold, False)):
        (tmp_path / "e.jsonl").write_text(json.dumps(fields) + "\n")
        spec = SourceSpec(label="e", path="e.jsonl", preset=preset, prompts_suffice=suffices)
        found += read_source(spec, tmp_path).records
    assert found[0].prompt_hash == found[1].prompt_hash
    assert (found[0].completion, found[0].answer) == ("", None)


def test_a_preset_that_lacks_its_prompt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"goal": "g", "sol1": "s"}\n')
    with pytest.raises(DataError, match="the preset 'piqa' needs goal, sol1, sol2"):
        read_source(SourceSpec(label="e", path="e.jsonl", preset="piqa", prompts_suffice=True), tmp_path)


def test_a_source_still_needs_its_responses(tmp_path: Path) -> None:
    recipe = write(tmp_path, {"question": "zzz"})
    (tmp_path / "a.jsonl").write_text('{"question": "q"}\n')
    with pytest.raises(DataError, match="no response"):
        run(load_recipe(recipe), tmp_path / "out")


def test_an_evaluation_set_needs_prompts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'bench': e\.jsonl:1: .*prompt"):
        run(load_recipe(write(tmp_path, {"answer": "x"})), tmp_path / "out")


def test_what_isnt_read_of_an_evaluation_set_or_a_companion_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "zz"})
    (tmp_path / "ev").mkdir()
    for name, question in (("train", "zz"), ("test", "q2")):
        (tmp_path / "ev" / f"{name}.jsonl").write_text(json.dumps({"question": question}) + "\n")
    bad = json.dumps({"instruction": "i", "output": "o", "weight": 0})
    good = json.dumps({"instruction": "j", "output": "o"})
    (tmp_path / "c.jsonl").write_text(f"{good}\n{bad}\n")
    (tmp_path / "e.jsonl").write_text('{"question": "zz"}\n{"foo": "q2"}\n')
    own = ["hygiene.evaluation.folder={path: ev, split: train}", "companion={path: c.jsonl, on_error: skip}"]
    notes = run(load_recipe(path, [*own, "hygiene.evaluation.bench.on_error=skip"]), tmp_path / "run").notes
    assert any(note.startswith("evaluation set folder: files not read:") and "test.jsonl" in note for note in notes)
    assert any(re.match(r"evaluation set bench: 1 row skipped: .* \(e\.jsonl:2\)", note) for note in notes)
    assert any(re.match(r"companion: 1 row skipped: the field 'weight' is 0.* \(c\.jsonl:2\)", note) for note in notes)


def test_unused_columns_of_an_evaluation_set_are_told_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "zz", "licence": "x", "note": "y"})
    result = run(load_recipe(path), tmp_path / "run")
    assert "evaluation set bench: columns not used: licence, note" in result.notes
    hygiene = json.loads((tmp_path / "run" / "hygiene.json").read_text())
    assert hygiene["evaluation"]["bench"]["columns_not_used"] == ["licence", "note"]


def test_an_evaluation_set_of_several_splits_names_one(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "zz"})
    (tmp_path / "ev").mkdir()
    for name in ("train", "test"):
        (tmp_path / "ev" / f"{name}.jsonl").write_text('{"question": "q1", "answer": "a"}\n')
    several = r"'ev' holds files of test: test\.jsonl; train: train\.jsonl; which of them to measure on"
    with pytest.raises(DataError, match=several):
        run(load_recipe(path, ["hygiene.evaluation.bench.path=ev"]), tmp_path / "out")
    with pytest.raises(DataError, match=several):
        find_files(own_source("mine", "ev"), tmp_path)
    assert run(load_recipe(path, ["hygiene.evaluation.bench={path: ev, split: test}"]), tmp_path / "out").count == 3
    (tmp_path / "ev" / "train.jsonl").unlink()
    (file,) = find_files(own_source("mine", "ev"), tmp_path).files
    assert file.name == "ev/test.jsonl"
    with pytest.raises(RecipeError, match="name its `split`"):
        own_source("mine", "{hub: owner/name}")
    datasets.DatasetDict(
        {name: datasets.Dataset.from_list([{"question": "q"}]) for name in ("train", "test")}
    ).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=r"saved has the splits \['train', 'test'\], and which one to measure on"):
        find_files(own_source("mine", "saved"), tmp_path)


def test_columns_that_a_task_of_ones_own_does_not_use_are_told(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"prompt": "q", "completion": "a", "topic": "x"}))
    with pytest.warns(UserWarning, match=r"^task 'mine': columns not used: topic$"):
        assert len(own_benchmark(own_source("mine", "t.jsonl"), tmp_path).items) == 1

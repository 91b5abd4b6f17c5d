from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.tasks.answers import parse_answer
from calibudget.tasks.presets import preset

COMMONSENSE = ["arc_challenge", "arc_easy", "boolq", "hellaswag", "openbookqa", "piqa", "social_i_qa", "winogrande"]
CONVERTED = {
    "instruction": "Please choose the correct answer to the question: Why?\n\nAnswer1: so Answer2: no",
    "input": "",
    "output": "the correct answer is answer2",
    "answer": "answer2",
}
PIQA = {"goal": "g", "sol1": "a", "sol2": "b", "label": 0}
ARC = {"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"}


def test_an_input_is_joined_and_an_answer_field_may_be_absent() -> None:
    fields = {"instruction": "Choose.", "input": "Answer1: a", "output": "the correct answer is answer1"}
    rendered = preset("openbookqa")(fields)
    assert rendered.instruction == "Choose.\nAnswer1: a"
    assert rendered.answer == "answer1"


def test_a_record_that_is_not_of_the_data_set_is_refused(subtests: pytest.Subtests) -> None:
    for name, fields, message in [
        ("piqa", {"goal": "g", "sol1": "a", "label": 0}, "or instruction, output; the record has goal, sol1, label"),
        ("piqa", {**PIQA, "label": 2}, "'label' must lie between 0 and 1, not 2"),
        ("piqa", {**PIQA, "label": None}, "needs goal, .*; the record's 'label' is null"),
        ("piqa", {**PIQA, "label": -1}, "not -1; that looks like the hidden label of a test split: take a split with"),
        ("arc_easy", {**ARC, "answerKey": ""}, "A, B; that looks like the hidden label"),
        ("piqa", {**PIQA, "goal": "  "}, "'goal' must hold text"),
        ("winogrande", {"sentence": "s", "option1": "a", "option2": "b", "answer": ""}, "from 1 to 2"),
        ("hellaswag", {"ctx": "c", "endings": [], "label": 0}, "'endings' must hold a list of texts"),
        ("arc_easy", {**ARC, "answerKey": "C"}, "the answer key 'C' is none of the choices' keys A, B"),
        ("arc_easy", {**ARC, "choices": {"text": ["a"], "label": ["A", "B"]}}, "with a label each"),
        ("boolq", {"question": "q", "answer": "maybe"}, "must be true or false"),
        ("arc_easy", {**CONVERTED, "answer": "answer3"}, "states 'answer2' but the field 'answer' holds 'answer3'"),
        ("arc_easy", {**CONVERTED, "output": None}, "'output' must hold text"),
    ]:
        with subtests.test(name=name, fields=fields, message=message), pytest.raises(DataError, match=message):
            preset(name)(fields)  # type: ignore[arg-type]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as handle:
        yield from map(json.loads, handle)


#: The frame of each instruction format around the texts of a record.
FRAMES = {
    "piqa": (
        r"Please choose the correct solution to the question: .+\n\nSolution1: .+\n\nSolution2: .+"
        r"\n\nAnswer format: solution1/solution2"
    ),
    "social_i_qa": (
        r"Please choose the correct answer to the question: .+\n\nAnswer1: .+ Answer2: .+ Answer3: .+"
        r"\n\nAnswer format: answer1/answer2/answer3"
    ),
    "winogrande": (
        r"Please choose the correct answer to fill in the blank to complete the given sentence: .+"
        r"\n\nOption1: .+ Option2: .+ Answer format: option1/option2"
    ),
}


@pytest.mark.data
@pytest.mark.parametrize("name", FRAMES)
def test_rendered_training_records_have_the_frame_of_the_test_file(data_dir: Path, name: str) -> None:
    frame = re.compile(FRAMES[name], re.DOTALL)
    for row in _rows(data_dir / f"commonsense/{name}.test.jsonl.gz"):
        assert frame.fullmatch(str(row["instruction"]))
        assert row["output"] == f"the correct answer is {row['answer']}"
    render = preset(name)
    for row in islice(_rows(data_dir / f"commonsense/{name}.train.jsonl.gz"), 5000):
        rendered = render(row)
        assert frame.fullmatch(rendered.instruction)
        assert rendered.response == f"the correct answer is {rendered.answer}"
        assert parse_answer(render.answer, rendered.response) == rendered.answer


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in COMMONSENSE if name != "hellaswag"])
def test_every_test_record_states_its_answer(data_dir: Path, name: str) -> None:
    for row in _rows(data_dir / f"commonsense/{name}.test.jsonl.gz"):
        assert preset(name)(row).answer == row["answer"]

# ruff: noqa: E501

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError, InputError
from calibudget.evaluation import panel_prompts
from calibudget.evaluation.aggregates import COMMON_TASKS, MATH_TASKS, MODERN_TASKS
from calibudget.evaluation.benchmarks import GROUPS, TASKS, Benchmark, expand_tasks, load_benchmark
from calibudget.tasks.answers import answers_equal, parse_answer
from tests.conftest import write_rows

#: Records of each task's own test set, from the data's own descriptions.
SIZES = {
    "math": 5000, "gsm8k": 1319, "boolq": 3270, "piqa": 1838, "social_i_qa": 1954, "hellaswag": 10_042,
    "winogrande": 1267, "arc_easy": 2376, "arc_challenge": 1172, "openbookqa": 500,
    "bbh": 6511, "gsm_plus": 2100, "humaneval": 164, "ifeval": 541, "math500": 500, "mbpp": 500,
}  # fmt: skip
ORIGINALS: dict[str, dict[str, Any]] = {
    "piqa": {"goal": "Open a jar.", "sol1": "Twist.", "sol2": "Sing.", "label": 0},
    "social_i_qa": {"context": "A ate.", "question": "Why?", "answerA": "hungry", "answerB": "sad", "answerC": "x", "label": "1"},
    "hellaswag": {"ctx": "A man", "endings": ["a", "b", "c", "d"], "label": 3},
    "winogrande": {"sentence": "The _ fell.", "option1": "cup", "option2": "sky", "answer": "1"},
    "boolq": {"question": "is water wet", "answer": True},
    "arc_easy": {"question": "Which?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
    "openbookqa": {"question_stem": "Which?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
    "gsm8k": {"question": "1+1?", "answer": "It is 2.\n#### 2"},
    "math": {"problem": "1+1?", "solution": "It is $\\boxed{2}$."},
    "bbh": {"task": "x", "input": "Which?\nOptions:\n(A) a\n(B) b", "target": "(B)"},
    "gsm_plus": {"question": "1+1?", "solution": "#### 2", "answer": "2"},
    "math500": {"problem": "1+1?", "solution": "$\\boxed{2}$", "answer": "2"},
    "humaneval": {"task_id": "H/0", "prompt": "def f():\n", "entry_point": "f", "test": "def check(c): pass", "canonical_solution": " pass"},
    "mbpp": {"task_id": 11, "text": "Write f.", "code": "def f(): pass", "test_list": ["assert f() is None"], "test_setup_code": ""},
    "ifeval": {"key": 1, "prompt": "Write.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
}  # fmt: skip


def write(folder: Path, name: str, *rows: dict[str, Any]) -> Path:
    return write_rows(folder / TASKS[name].path.removesuffix(".gz"), rows)


def load(folder: Path, name: str, *rows: dict[str, Any]) -> Benchmark:
    return load_benchmark(name, folder, path=str(write(folder, name, *rows)))


def words(**arguments: Any) -> dict[str, Any]:
    return {"instruction_id_list": ["length_constraints:number_words"], "kwargs": [arguments]}


def keywords(value: object) -> dict[str, Any]:
    return {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": value}]}


def checked(name: str, *rest: object) -> object:
    """A test's parameters, slow where they import IFEval's checkers."""
    return pytest.param(name, *rest, marks=pytest.mark.slow if name == "ifeval" else ())


@pytest.mark.parametrize("name", [checked(name) for name in ORIGINALS])
def test_original_fields_are_read(tmp_path: Path, name: str) -> None:
    benchmark = load(tmp_path, name, ORIGINALS[name])
    [item] = benchmark.items
    assert item.record.prompt[0].role == "user"
    assert benchmark.files[0].bytes > 0
    if benchmark.task.check == "answer":
        assert answers_equal(item.answer, item.record.answer or "", parse_answer(item.answer, item.record.completion))
    else:
        assert item.record.answer is None
        assert item.record.completion == panel_prompts.NO_REFERENCE


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("piqa", {"label": 2}, "between 0 and 1"),
        ("piqa", {"label": None}, "needs goal"),
        ("hellaswag", {"label": ""}, "must be a number"),
        ("arc_easy", {"answerKey": "3"}, "none of the choices' keys"),
        ("boolq", {"answer": "perhaps"}, "true or false"),
        ("gsm8k", {"answer": "no number here"}, "states no number"),
        ("bbh", {"target": ""}, "'target'"),
        ("humaneval", {"test": None}, "'test'"),
        ("humaneval", {"entry_point": "f; g"}, "'entry_point' must hold the name of a function"),
        ("mbpp", {"test_list": []}, "'test_list' must hold a list of texts"),
        ("mbpp", {"test_setup_code": 5}, "'test_setup_code' must hold text, not 5"),
        ("mbpp", {"test_setup_code": None, "test_imports": "re"}, "'test_imports' must hold a list of texts, not 're'"),
        ("mbpp", {"text": ...}, "'prompt' must hold text"),
        ("hellaswag", {"endings": ["a", "b", "c", "d", "e"], "label": 4}, "ending5, is none of"),
        ("mbpp", {"code": "def f(:"}, "no Python"),
        checked("ifeval", {"kwargs": [{}, {}]}, "one length"),
        checked("ifeval", {"instruction_id_list": ["a:b"]}, "unknown"),
        checked(
            "ifeval", words(num_words=5, relation="exactly"), "'relation' .* must be 'less than' or 'at least', not"
        ),
        checked(
            "ifeval", words(num_words="5", relation="at least"), "'num_words' .* an integer of at least 0, not '5'"
        ),
        checked("ifeval", words(num_words=5, relation="at least", more=1), "'more' .* must be absent, not 1"),
        checked("ifeval", keywords("x"), "'keywords' .* must be a list of texts, not 'x'"),
        checked("ifeval", keywords(["C("]), "'keywords' .* a regular expression"),
    ],
)
def test_an_item_without_a_usable_gold_is_refused(tmp_path: Path, name: str, fields: dict, message: str) -> None:  # type: ignore[type-arg]
    row = {field: value for field, value in (ORIGINALS[name] | fields).items() if value is not ...}
    path = write(tmp_path, name, ORIGINALS[name], row)
    with pytest.raises(DataError, match=message) as refusal:
        load_benchmark(name, tmp_path, path=str(path))
    assert f"{path.name}:2" in str(refusal.value)


def test_equal_items_keep_ids_of_their_own(tmp_path: Path) -> None:
    for name in ("piqa", "bbh"):
        ids = [item.record.record_id for item in load(tmp_path, name, *[ORIGINALS[name]] * 3).items]
        assert [one.partition("#")[2] for one in ids] == ["", "2", "3"]


def test_items_that_a_task_does_not_ask_are_counted(tmp_path: Path) -> None:
    benchmark = load(tmp_path, "gsm_plus", ORIGINALS["gsm_plus"], ORIGINALS["gsm_plus"] | {"answer": "None"})
    assert (len(benchmark.items), benchmark.left_out) == (1, 1)
    benchmark = load(tmp_path, "mbpp", ORIGINALS["mbpp"], ORIGINALS["mbpp"] | {"task_id": 511})
    assert (len(benchmark.items), benchmark.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("target", "question", "gold", "text"),
    [
        ("(B)", "Which?\nOptions:\n(A) a\n(B) b", "B", "So it is b. The answer is (B)."),
        ("True", "not ( True ) is", "True", "The answer is True."),
        ("invalid", "valid or invalid?", "invalid", "The answer is invalid."),
        ("-12", "((-1 + 2)) =", "-12", "The answer is -12."),
        ("> ) }", "Complete: { ( <", "> ) }", "The answer is > ) }."),
        ("a b c", "Sort: c a b", "a b c", "First a. The answer is a b c."),
        ("Monsters, Inc", "Which?\nOptions:\n(A) Monsters\n(B) Inc", "Monsters, Inc", "The answer is Monsters, Inc."),
    ],
)
def test_bbh_targets_of_every_form(target: str, question: str, gold: str, text: str) -> None:
    item = panel_prompts.bbh_item({"input": question, "target": target})
    assert panel_prompts.answer_of_gold("bbh", gold) == (None if len(gold) == 1 else item.answer)
    assert item.gold == gold
    assert answers_equal(item.answer, gold, parse_answer(item.answer, text))
    assert answers_equal(item.answer, gold, parse_answer(item.answer, item.reference))
    assert not answers_equal(item.answer, gold, parse_answer(item.answer, "The answer is something else."))


def test_names_groups_and_own_files() -> None:
    assert tuple(expand_tasks(["paper"])) == (*MATH_TASKS, *COMMON_TASKS)
    assert tuple(expand_tasks(["modern"])) == MODERN_TASKS
    assert expand_tasks(["hellaswag=my/file.jsonl", "piqa"]) == {"hellaswag": "my/file.jsonl", "piqa": None}
    assert tuple(expand_tasks(["panel-320", "gsm8k"])) == (*MODERN_TASKS, "gsm8k")
    assert set(expand_tasks(["all"])) == set(TASKS) == set(SIZES)
    assert all(set(names) <= set(TASKS) for names in GROUPS.values())


@pytest.mark.parametrize("names", [[], ["nonsense"], ["piqa", "commonsense"], ["paper=x"]])
def test_unknown_or_repeated_tasks_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="task"):
        expand_tasks(names)


def test_a_limit_takes_the_same_items_whatever_their_order(tmp_path: Path) -> None:
    rows = [ORIGINALS["piqa"] | {"goal": f"Goal {n}."} for n in range(40)]
    one, other = load(tmp_path, "piqa", *rows).limited(7), load(tmp_path, "piqa", *rows[::-1]).limited(7)
    ids = [item.record.record_id for item in one.items]
    assert ids == [item.record.record_id for item in other.items]
    assert one.items_sha256 == other.items_sha256
    assert ids == [item.record.record_id for item in load(tmp_path, "piqa", *rows).limited(20).items][:7]
    with pytest.raises(DataError, match="ids that aren't there: 1 of 1"):
        one.only(["nowhere"])


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("most", [200, pytest.param(None, marks=pytest.mark.full)])
def test_real_tasks_are_whole_and_their_references_parse_to_their_answers(
    data_dir: Path, name: str, most: int | None
) -> None:
    benchmark = load_benchmark(name, data_dir)
    assert len(benchmark.items) == SIZES[name]
    assert len({item.record.record_id for item in benchmark.items}) == SIZES[name]
    if benchmark.task.check == "answer":
        wrong = Counter(
            item.record.record_id
            for item in benchmark.limited(most or SIZES[name]).items
            if not answers_equal(
                item.answer, item.record.answer or "", parse_answer(item.answer, item.record.completion)
            )
        )
        assert not wrong

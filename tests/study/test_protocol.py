"""Protocols as people write them: what they mean, and refusals that name line and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.errors import InputError, StudyError
from calibudget.study.cell import base_recipe, settings_of, settings_sha256
from calibudget.study.grid import cells_of
from calibudget.study.protocol import EvaluationFields, asked_tasks, load_protocol, protocol_from_json


def refusal(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(StudyError) as caught:
        load_protocol(path)
    return str(caught.value).replace(str(path.parent), "")


def test_the_grid_holds_every_policy_with_every_seed(small: Path) -> None:
    protocol = load_protocol(small)
    cells = cells_of(protocol)
    assert len(cells) == 4 * 2 + 2 * 3 + 2 * 2 + 4 * 3
    assert len({cell.name for cell in cells}) == len(cells)
    assert [cell.name for cell in cells[:5]] == [
        "main/tiny/equal/42",
        "main/tiny/val-error-floor/42",
        "main/tiny/val-error-floor-z/42",
        "main/tiny/calibudget/42",
        "main/tiny/equal/43",
    ]


def test_a_cells_recipe_is_the_protocols_with_its_own_seeds(small: Path) -> None:
    protocol = load_protocol(small)
    by_name = {cell.name: cell for cell in cells_of(protocol)}
    base = base_recipe(protocol)
    recipe = settings_of(protocol, by_name["main/tiny/val-error-floor-z/43"], base).recipe
    assert (recipe.policy, recipe.signal, recipe.budget, recipe.floor) == ("val-error-floor", "z", 24, 4)
    assert {recipe.seed, recipe.split_seed, recipe.bootstrap_seed, recipe.selection_seed, recipe.training_seed} == {43}
    moved = settings_of(protocol, by_name["transferred/tiny/calibudget/43"], base).recipe
    assert (moved.split_seed, moved.bootstrap_seed, moved.selection_seed, moved.training_seed) == (42, 42, 42, 43)
    digests: dict[str, list[str]] = {}
    for name, cell in by_name.items():
        digests.setdefault(settings_sha256(settings_of(protocol, cell, base)), []).append(name)
    shared = [names for names in digests.values() if len(names) > 1]
    # quotas that a seed keeps for itself aren't transferred: the same work under two points
    assert shared == [
        [f"main/tiny/{policy}/42", f"transferred/tiny/{policy}/42"] for policy in ("val-error-floor", "calibudget")
    ]


def test_a_protocol_comes_back_from_its_json(small: Path) -> None:
    protocol = load_protocol(small)
    assert protocol_from_json(protocol.to_json(), small.parent) == protocol
    shuffled = json.loads(json.dumps(protocol.to_json(), sort_keys=True))
    again = protocol_from_json(shuffled, small.parent)
    assert list(again.points) == ["main", "low-floor", "transferred", "splits"]
    assert cells_of(again) == cells_of(protocol)
    small.write_text("# a comment\n" + small.read_text())
    assert load_protocol(small).to_json() == protocol.to_json()
    with pytest.raises(StudyError, match="focus"):
        protocol_from_json({**protocol.to_json(), "focus": 3}, small.parent)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("name: small", "name: small\nnote: x", "protocol.yaml:2: note: unknown field"),
        ("seeds: [42, 43]}", "seeds: [42, 42]}", "'42'|42 twice"),
        ("seeds: [42, 43]}", "seeds: [42]}", "at least two seeds"),
        ("focus: calibudget", "focus: other", "'other', which is no policy"),
        ("comparator: val-error-floor\n", "comparator: calibudget\n", "same policy"),
        ("endpoint: BoolQ", "endpoint: Else", "'Else', which is no endpoint"),
        ("BoolQ: {panel: boolq}", "BoolQ: {panel: bool}", "neither a panel nor a task"),
        ("Both: [boolq, openbookqa]", "Both: [boolq, boolq]", "each named once"),
        ("tasks: [boolq=boolq.test.jsonl,", "tasks: [bool=boolq.test.jsonl,", "needs the task 'boolq'"),
        ("of_point: main", "of_point: splits", "'splits', which is no earlier point"),
        ("of_point: main", "bound: 0.5, of_point: main", "not both"),
        ("low-floor:\n", "main:\n", "duplicate key 'main'"),
        ("policies: [calibudget, val-error-floor]\n", "policies: [calibudget, calibudget]\n", "duplicates"),
        ("policies: [calibudget, val-error-floor]\n", "policies: [calibudge]\n", "'calibudge', which is no policy"),
        ("status: confirmatory,", "status: confirmatory, policies: [calibudget],", "policy of the point"),
        ("  tiny:", "  a/b:", "'a/b'"),
    ],
)
def test_what_a_protocol_cant_mean_is_refused(small: Path, old: str, new: str, told: str) -> None:
    message = refusal(small, old, new)
    assert any(part in message for part in told.split("|")), message
    assert "/protocol.yaml" in message


def test_what_the_grid_decides_cant_be_set_elsewhere(small: Path) -> None:
    small.write_text(small.read_text().replace("signal: z", "signal: z, seed: 7"))
    protocol = load_protocol(small)
    with pytest.raises(StudyError, match=r"recipe\.seed"):
        [settings_of(protocol, cell, base_recipe(protocol)) for cell in cells_of(protocol)]


def test_likelihood_gives_scores_of_tasks_with_choices_alone() -> None:
    assert asked_tasks(EvaluationFields(tasks=("piqa", "gsm8k"), likelihood=True)) == (
        "piqa",
        "gsm8k",
        "piqa_likelihood",
    )
    with pytest.raises(InputError, match=r"none of the tasks asked \(gsm8k\) is multiple choice"):
        asked_tasks(EvaluationFields(tasks=("gsm8k",), likelihood=True))

"""What is told when a pool is empty, when data changed before a run goes on, and when there is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibudget.errors import AllocationError, ArtefactError
from calibudget.pipeline.dry_run import dry_run
from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe

RECIPE = """
policy: calibudget
budget: 10
calibration: {per_source: 4, batch_tokens: 64}
engine: fake
model: embedded
error: nll
"""


def recipe(folder: Path, **sources: list[dict[str, str]]) -> Path:
    for label, rows in sources.items():
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ", ".join(f"{label}: {{path: {label}.jsonl}}" for label in sources)
    (folder / "recipe.yaml").write_text(f"{RECIPE}sources: {{{named}}}\n")
    return folder / "recipe.yaml"


def rows(label: str, count: int, prompt: str = "{label} {number}") -> list[dict[str, str]]:
    return [
        {"instruction": prompt.format(label=label, number=number), "output": f"answer {number}"}
        for number in range(count)
    ]


def test_a_budget_beyond_empty_pools_says_which_are_empty_and_why(tmp_path: Path) -> None:
    loaded = load_recipe(recipe(tmp_path, few=rows("few", 4), twins=rows("twins", 9, "same")))
    for attempt in (lambda: run(loaded, tmp_path / "out"), lambda: dry_run(loaded)):
        with pytest.raises(AllocationError, match=r"the budget 10 is 10 above all pools together \(0\)") as caught:
            attempt()
        assert "source 'few' has no candidates left: of its records 4 calibrate;" in str(caught.value)
        assert "source 'twins' has no candidates left: of its records 4 calibrate, 5 have a cal" in str(caught.value)


def test_a_run_with_an_empty_pool_tells_it(tmp_path: Path) -> None:
    loaded = load_recipe(recipe(tmp_path, few=rows("few", 4), many=rows("many", 40)))
    result = run(loaded, tmp_path / "out")
    assert result.plan.quotas == {"few": 0, "many": 10}
    assert "source 'few' has no candidates left: of its records 4 calibrate" in result.notes


class _InterruptedError(Exception):
    pass


def _interrupt(stage: str, done: int, total: int) -> None:
    if stage == "scoring" and 0 < done <= total:
        raise _InterruptedError


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            rows("other", 20),
            r"source 'b' has other records than when this run was begun, so b\.jsonl must have changed",
        ),
        ([*rows("b", 20), *rows("more", 1)], "source 'b' has other records"),
        (rows("b", 20, "{label}  {number}"), r"the journal belongs to another run.*sources\.b"),
    ],
)
def test_data_that_changed_before_a_run_goes_on_is_refused_by_source(
    tmp_path: Path, changed: list[dict[str, str]], message: str
) -> None:
    path = recipe(tmp_path, a=rows("a", 20), b=rows("b", 20))
    with pytest.raises(_InterruptedError):
        run(load_recipe(path), tmp_path / "out", progress=_interrupt)  # type: ignore[arg-type]
    before = (tmp_path / "b.jsonl").read_bytes()
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    with pytest.raises(ArtefactError, match=message):
        run(load_recipe(path), tmp_path / "out", resume=True)
    (tmp_path / "b.jsonl").write_bytes(before)
    assert run(load_recipe(path), tmp_path / "out", resume=True).count == 10


def test_an_evaluation_set_that_changed_before_a_run_goes_on_is_named_and_not_a_source(tmp_path: Path) -> None:
    path = recipe(tmp_path, a=rows("a", 20), b=rows("b", 20))
    (tmp_path / "e.jsonl").write_text('{"question": "a 3"}\n')
    more = ["hygiene.evaluation={bench: {path: e.jsonl}}"]
    with pytest.raises(_InterruptedError):
        run(load_recipe(path, more), tmp_path / "out", progress=_interrupt)  # type: ignore[arg-type]
    (tmp_path / "e.jsonl").write_text('{"question": "a 4"}\n')
    with pytest.raises(ArtefactError, match=r"evaluation set 'bench' has other files than .* \(e\.jsonl\)"):
        run(load_recipe(path, more), tmp_path / "out", resume=True)


def test_a_companion_that_changed_before_a_run_goes_on_is_refused_by_its_file(tmp_path: Path) -> None:
    path = recipe(tmp_path, a=rows("a", 20), b=rows("b", 20))
    lines = [json.dumps(row) + "\n" for row in rows("c", 3)]
    (tmp_path / "c.jsonl").write_text("".join(lines))
    more = ["companion={path: c.jsonl, answer: none}"]
    with pytest.raises(_InterruptedError):
        run(load_recipe(path, more), tmp_path / "out", progress=_interrupt)  # type: ignore[arg-type]
    (tmp_path / "c.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(ArtefactError, match=r"the companion set has other files than .* \(c\.jsonl\)"):
        run(load_recipe(path, more), tmp_path / "out", resume=True)
    (tmp_path / "c.jsonl").write_text("".join(lines))
    assert run(load_recipe(path, more), tmp_path / "out", resume=True).companion_count == 3


def test_a_finished_run_says_that_it_read_nothing_again(tmp_path: Path) -> None:
    path = recipe(tmp_path, a=rows("a", 20))
    run(load_recipe(path), tmp_path / "out")
    (tmp_path / "a.jsonl").unlink()
    again = run(load_recipe(path), tmp_path / "out", resume=True)
    assert again.count == 10
    assert any("finished before: its data wasn't read again" in note for note in again.notes)

"""`draft_recipe`: what it names, and what it leaves out and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from calibudget.errors import InputError
from calibudget.pipeline.init import draft_recipe
from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe
from tests.conftest import write_rows

PIQA = [{"goal": f"goal {n}", "sol1": "a", "sol2": "b", "label": n % 2} for n in range(40)]
PAIRS = [{"prompt": f"{n}?", "completion": "x"} for n in range(40)]


def drafted(folder: Path) -> tuple[str, dict[str, dict[str, Any]], dict[str, Any]]:
    text = draft_recipe(folder).text
    fields = yaml.safe_load(text)
    return text, fields["sources"], fields.get("hygiene", {}).get("evaluation", {})


def test_presets_are_told_by_fields_under_any_name(tmp_path: Path) -> None:
    write_rows(tmp_path / "mine.train.jsonl", PIQA)
    write_rows(tmp_path / "piqa.train.jsonl", PAIRS)
    _, sources, _ = drafted(tmp_path)
    assert sources["mine"] == {"path": "mine.train.jsonl", "preset": "piqa"}
    assert sources["piqa"] == {"path": "piqa.train.jsonl", "answer": "none"}


@pytest.mark.parametrize("field", ["messages", "conversations"])
def test_conversations_are_rendered_by_the_chat_template(tmp_path: Path, field: str) -> None:
    names = ("role", "content") if field == "messages" else ("from", "value")
    turns = [dict(zip(names, turn, strict=True)) for turn in (("user", "How?"), ("assistant", "So."))]
    write_rows(tmp_path / "talk.jsonl", [{field: [{**turns[0], names[1]: f"How {n}?"}, turns[1]]} for n in range(40)])
    assert yaml.safe_load(draft_recipe(tmp_path).text)["template"] == "chat"
    write_rows(tmp_path / "pairs.jsonl", PAIRS)
    assert yaml.safe_load(draft_recipe(tmp_path).text)["template"] == "alpaca"


def test_what_cannot_be_read_is_a_comment_with_its_reason(tmp_path: Path) -> None:
    write_rows(tmp_path / "good.jsonl", PAIRS)
    write_rows(tmp_path / "code.jsonl", [{"text": "t", "code": "c"}])
    write_rows(tmp_path / "hellaswag.train.jsonl", [{"question": "q", "choices": {"A": "a"}, "answer": "A"}])
    (tmp_path / "torn.jsonl.gz").write_bytes(b"no archive")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    text, sources, _ = drafted(tmp_path)
    assert set(sources) == {"good"}
    assert "# code: {path: code.jsonl}" in text
    assert "no known format (text, code)" in text
    assert "a plain prompt would lack 'choices'" in text
    assert "# torn: " in text
    assert "it has no rows" in text
    comments = {line.index("# left out") for line in text.splitlines() if "# left out" in line}
    assert len(comments) == 1


def test_rows_are_skipped_only_where_a_comment_says_so(tmp_path: Path) -> None:
    write_rows(tmp_path / "piqa.jsonl", [*PIQA, {**PIQA[0], "label": 7}])
    write_rows(tmp_path / "bad.jsonl", [*PAIRS[:4], {"prompt": "x", "completion": ""}])
    write_rows(tmp_path / "own.jsonl", [*PAIRS, *({"prompt": "x", "completion": one} for one in ("", None, ""))])
    text, sources, _ = drafted(tmp_path)
    assert sources["piqa"]["on_error"] == "skip"
    assert "# skips 1 row of 41 looked at (the label 'label' must lie between 0 and 1, not 7)" in text
    own = next(line for line in text.splitlines() if "own.jsonl" in line)
    assert "# or {kind: choice, labels: [...]}, number, math, exact, regex; skips 3 rows of 43 looked at (2: " in own
    assert "on_error" not in own.partition("#")[2]
    assert "bad" not in sources
    assert "# left out: 1 of 5 rows looked at can't be used (" in text


def test_evaluation_sets_are_the_tests_of_sources_and_hold_none_whole(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.train.jsonl", PAIRS[10:])
    write_rows(tmp_path / "a.test.jsonl", PAIRS[:12])
    write_rows(tmp_path / "b.train.jsonl", PAIRS[:5])
    write_rows(tmp_path / "b.test.jsonl", PIQA[:5])
    write_rows(tmp_path / "c.test.jsonl", PAIRS)
    text, _, evaluation = drafted(tmp_path)
    assert set(evaluation) == {"b_test"}
    assert "# a_test: {path: a.test.jsonl, answer: none}" in text
    assert "holds all prompts of the source b" in text
    assert "no source above is named c" in text
    write_rows(tmp_path / "b.train.jsonl", PAIRS[:5] + PAIRS[20:])
    assert set(drafted(tmp_path)[2]) == {"a_test", "b_test"}


@pytest.mark.parametrize(("rows", "share", "floor"), [(40, 10, 5), (400, 150, 75), (3000, 1000, 100)])
def test_budget_and_floor_leave_the_policy_something_to_choose(
    tmp_path: Path, rows: int, share: int, floor: int
) -> None:
    for name in "ab":
        write_rows(tmp_path / f"{name}.jsonl", [{"prompt": f"{name} {n}?", "completion": "x"} for n in range(rows)])
    fields = yaml.safe_load(draft_recipe(tmp_path).text)
    assert (fields["budget"], fields["floor"]) == (2 * share, floor)


def test_names_stay_within_their_comments_and_tiny_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "d\nengine: fake #\x1b]0;x\x07"
    folder.mkdir()
    write_rows(folder / "good.jsonl", PAIRS)
    write_rows(folder / "tiny.jsonl", PAIRS[:2])
    text = draft_recipe(folder, written_to=tmp_path / "r\nbudget: 3.yaml").text
    fields = yaml.safe_load(text)
    assert ("engine" in fields, set(fields["sources"]), Path(fields["data_dir"])) == (False, {"good"}, folder)
    assert "# left out: it holds 2 different records" in text


def test_a_folder_of_unreadable_files_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "code.jsonl", [{"text": "t", "code": "c"}])
    with pytest.raises(InputError, match=r"code.jsonl: the fields show no known format"):
        draft_recipe(tmp_path)


def test_what_is_written_can_run_whatever_the_files_are_called(tmp_path: Path) -> None:
    names = ("a.jsonl", "A.train.jsonl", "companion.jsonl", "default.jsonl", "b/x.jsonl", "x.jsonl", "b_x.jsonl")
    for number, name in enumerate((*names, "x.test.jsonl", "b/x.test.jsonl", ".git/old.jsonl")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_rows(tmp_path / name, [{"prompt": f"{number}, {row}?", "completion": "x"} for row in range(7 + number)])
    (tmp_path / "recipe.yaml").write_text(draft_recipe(tmp_path).text)
    recipe = load_recipe(tmp_path / "recipe.yaml", ["engine=fake", f"data_dir={tmp_path}"])
    assert sorted(source.path[0] for source in recipe.sources.values()) == sorted(names)  # type: ignore[index]
    assert len(recipe.hygiene.evaluation) == 2
    assert run(recipe, tmp_path / "run").count == recipe.budget

"""`calibudget evaluate` on a run with the fake scorer: what it prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calibudget.cli.evaluate import evaluate
from calibudget.errors import CalibudgetError

RECIPE = "engine: fake\nbudget: 4\npolicy: equal\nsources:\n  piqa: {path: piqa.jsonl, preset: piqa}\n"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "recipe.resolved.yaml").write_text(RECIPE)
    rows = [{"goal": f"Goal {n}.", "sol1": "Twist.", "sol2": "Sing.", "label": n % 2} for n in range(5)]
    (tmp_path / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def call(run_dir: Path, *arguments: str) -> str:
    app = typer.Typer()
    app.command()(evaluate)
    always = [str(run_dir), "--tasks", "piqa=piqa.jsonl", "--data-dir", str(run_dir.parent)]
    result = CliRunner().invoke(app, [*always, *arguments], env={"COLUMNS": "120"})
    if isinstance(result.exception, CalibudgetError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_table_with_tasks_and_whole_panels(run_dir: Path) -> None:
    shown = call(run_dir, "--likelihood")
    assert "piqa_likelihood" in shown
    assert "Overall" not in shown
    assert (run_dir / "evaluation.json").exists()


def test_json_is_the_files_object(run_dir: Path) -> None:
    shown = call(run_dir, "--json", "--limit", "3")
    assert shown.encode() == (run_dir / "evaluation.json").read_bytes() + b"\n"
    assert json.loads(shown)["tasks"]["piqa"]["items"] == 3


def test_what_the_scores_are_of_is_said(run_dir: Path) -> None:
    shown = call(run_dir, "--limit", "3")
    assert "FAKE SCORER, NO MODEL" in shown
    assert "NO MODEL: this run was made with `engine: fake`; name a model" in shown
    assert "not whole tasks: first 3 in keyed order" in shown
    assert f"results are in {run_dir}: evaluation.json" in shown
    assert "by no model" in json.loads((run_dir / "evaluation.json").read_text())["model"]["note"]
    with pytest.raises(CalibudgetError, match=r"name another --output-dir$"):
        call(run_dir)


def test_tasks_without_choices_are_named_beside_likelihood(run_dir: Path) -> None:
    (run_dir.parent / "gsm8k.jsonl").write_text(json.dumps({"question": "1+1?", "answer": "#### 2"}) + "\n")
    shown = call(run_dir, "--likelihood", "--tasks", "gsm8k=gsm8k.jsonl")
    assert "by likelihood only where there are choices: not gsm8k" in shown


def test_texts_can_be_judged_again(run_dir: Path) -> None:
    first = call(run_dir, "--json")
    assert call(run_dir, "--json", "--rejudge") == first

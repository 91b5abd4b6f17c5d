"""Kill -9 at a command's writes: what it left is never in the way, and going on gives the bytes of a whole one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.verify import verify
from calibudget.store import held_names

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")

#: Runs a command and kills it at one of its writes, before or after the rename that makes the file.
PROGRAM = """
import os, signal, sys
from calibudget.store import files
left, when, real = int(sys.argv[1]), sys.argv[2], files._replace
def replace(temporary, path):
    global left
    left -= 1
    if left < 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(temporary, path)
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
files._replace = replace
sys.argv = ["calibudget", *sys.argv[3:]]
from calibudget.cli.entry import entry
entry()
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("data")
    for label in ("one", "two"):
        rows = [{"instruction": f"{label} {i}?", "output": f"answer{i % 2 + 1}"} for i in range(120)]
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = "answer: {kind: choice, labels: [answer1, answer2]}"
    sources = "".join(f"  {label}: {{path: {label}.jsonl, {answer}}}\n" for label in ("one", "two"))
    text = f"engine: fake\nmodel: embedded\nbudget: 40\nfloor: 5\ncalibration: {{per_source: 30}}\nsources:\n{sources}"
    (folder / "recipe.yaml").write_text(text)
    return folder / "recipe.yaml"


def killed(number: Any, when: Any, *arguments: Any) -> bool:
    """Run a command that dies at a write; False if it came to its end before that."""
    command = [sys.executable, "-c", PROGRAM, str(number), when, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode != 0


def finish(*arguments: Any) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "calibudget", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def contents(directory: Path) -> Any:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".calibudget.lock")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that nothing disturbed."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    finish("run", recipe, "--output-dir", directory)
    return directory


def writes() -> Any:
    """The first writes of a command; all of them in the full count."""
    return [
        pytest.param([0, 1, 5], id="some"),
        pytest.param(None, id="all", marks=pytest.mark.full),
    ]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("numbers", writes())
def test_a_run_killed_at_a_write_resumes_to_the_same_bytes(
    recipe: Any, whole: Any, tmp_path: Path, numbers: Any, when: str
) -> None:
    for number in numbers or count():
        directory = tmp_path / str(number)
        if not killed(number, when, "run", recipe, "--output-dir", directory):
            assert number > 8
            break
        finish("run", recipe, "--output-dir", directory, "--resume")
        assert contents(directory) == contents(whole)


@pytest.mark.parametrize("numbers", writes())
def test_a_draw_killed_at_a_write_is_made_again(recipe: Any, whole: Path, tmp_path: Path, numbers: Any) -> None:
    select = ("select", recipe, "--allocation", whole / "allocation.json", "--output-dir")
    finish(*select, tmp_path / "undisturbed")
    for number in numbers or count():
        directory = tmp_path / str(number)
        if not killed(number, "before", *select, directory):
            break
        finish(*select, directory)
        assert contents(directory) == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("numbers", [pytest.param([0, 1, 2], id="some")])
def test_an_evaluation_killed_at_a_write_never_makes_the_run_differ(
    recipe: Any, tmp_path: Path, numbers: Any, when: str
) -> None:
    rows = [{"instruction": f"eval {i}?", "answer": "true", "output": "true"} for i in range(9)]
    task = tmp_path / "boolq.jsonl"
    task.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number in numbers:
        directory = tmp_path / str(number)
        finish("run", recipe, "--output-dir", directory)
        evaluate = ("evaluate", directory, "--tasks", f"boolq={task}")
        assert killed(number, when, *evaluate)
        assert verify(directory).differences == ()
        finish(*evaluate, "--resume")
        assert verify(directory).differences == ()
        assert not list(directory.glob(".calibudget-*"))


def test_what_a_killed_writer_left_is_nothing_and_what_looks_like_it_is_something(whole: Path, tmp_path: Path) -> None:
    (tmp_path / ".calibudget-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".calibudget-0123456789abcdef.tmp2").write_bytes(b"")
    (tmp_path / ".calibudget-x.tmp").write_bytes(b"")
    assert held_names(tmp_path) == [".calibudget-0123456789abcdef.tmp2", ".calibudget-x.tmp"]
    (whole / ".calibudget-0123456789abcdef.tmp").write_bytes(b"half")
    assert verify(whole).differences == ()
    (whole / ".calibudget-0123456789abcdef.tmp").unlink()
    (whole / ".calibudget-x.tmp").write_bytes(b"")
    assert [difference.file for difference in verify(whole).differences] == [".calibudget-x.tmp"]
    (whole / ".calibudget-x.tmp").unlink()

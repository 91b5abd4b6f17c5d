"""`calibudget --help` lists every command once, in whole sentences; shells complete commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibudget.cli.main import app


def test_help_lists_every_command_once_by_purpose_in_whole_sentences(calibudget: Any) -> None:
    told = calibudget("--help")
    assert told.code == 0
    assert max(map(len, told.out.splitlines())) <= 80
    commands = told.out.split("The main job:")[1]
    assert "..." not in commands
    names = re.findall(r"^  ([a-z]+)  +\S", commands, re.MULTILINE)
    assert len(names) == len(set(names))
    known = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    assert set(names) == known | {group.name for group in app.registered_groups}
    entries = re.split(r"^  [a-z]+  +(?=\S)", commands, flags=re.MULTILINE)[1:]
    assert all(entry.split("\n\n")[0].rstrip().endswith(".") for entry in entries)


def test_a_shell_completes_the_name_of_a_command() -> None:
    environment = os.environ | {
        "_CALIBUDGET_COMPLETE": "complete_bash", "COMP_WORDS": "calibudget ver", "COMP_CWORD": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    command = [Path(sys.executable).parent / "calibudget"]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.stdout.split() == ["verify"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("export run --for trl --for axolotl --output-dir out", "--for"),
        ("run recipe.yaml --output-dir a --output-dir=b", "--output-dir"),
        ("study freeze protocol.yaml --output-dir a --output-dir b", "--output-dir"),
        ("allocate statistics.json --budget 5 --budget 5", "--budget"),
    ],
)
def test_an_option_of_one_value_given_twice_is_refused_by_name(calibudget: Any, words: str, option: str) -> None:
    told = calibudget(*words.split())
    assert told.code == 2
    assert told.err == f"calibudget: {option} is given twice; it takes one value\n"

"""What an interrupted command says: how to go on, by an option only where it has that option."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from calibudget.cli.interrupts import REPEATED, RESUMED, Stop
from calibudget.cli.main import app
from calibudget.errors import InterruptedRunError

AGAIN = "nothing finished is lost, the same command goes on from here"
RESUME = "nothing finished is lost, the same command with `--resume` goes on from here"
#: What a command that may take long says first.
BEGUN = "calibudget: starting ...\n"
NOTHING = "there is nothing to resume, give the command again"
LOAD = "calibudget.recipe.load.load_recipe"


@pytest.mark.parametrize("stop", [Stop(), InterruptedRunError("stopped after step 3 of 9")])
@pytest.mark.parametrize(
    ("arguments", "where", "words"),
    [
        (["run", "recipe.yaml", "--output-dir", "out"], LOAD, RESUME),
        (["run", "recipe.yaml", "--dry-run"], LOAD, NOTHING),
        (["train", "out"], "calibudget.pipeline.train.train", RESUME),
        (["score", "recipe.yaml"], LOAD, AGAIN),
        (["influence", "recipe.yaml"], "calibudget.pipeline.influence.influence_recipe", AGAIN),
        (["study", "run", "protocol.yaml"], "calibudget.study.protocol.load_protocol", AGAIN),
        (["verify", "out"], "calibudget.pipeline.verify.verify", NOTHING),
        (["study", "report", "out"], "calibudget.study.reporting.report.write_report", NOTHING),
    ],
)
def test_an_interrupted_command_names_what_goes_on(
    calibudget: Any, monkeypatch: pytest.MonkeyPatch, arguments: Any, where: Any, words: Any, stop: Any
) -> None:
    def stopped(*_arguments: Any, **_options: Any) -> None:
        raise stop

    monkeypatch.setattr(where, stopped)
    outcome = calibudget(*arguments)
    told = str(stop) or "interrupted"
    assert (outcome.code, outcome.err.removeprefix(BEGUN)) == (3, f"calibudget: {told}; {words}\n")


def test_commands_that_are_told_to_resume_can() -> None:
    from typer.main import get_command

    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = {name for name, command in commands.items() if any(each.name == "resume" for each in command.params)}
    assert known == RESUMED
    nested = {f"study {name}" for name in commands["study"].commands}
    assert {*commands, *nested} >= REPEATED


#: A command that gets a signal while its modules are imported, while it runs, or when all is done.
CHILD = """
import atexit, os, signal, sys

def stop():
    os.kill(os.getpid(), signal.{signal})

class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            stop()

sys.meta_path.insert(0, Finder())
{last}
from calibudget.cli.entry import entry

entry()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "module"), [("SIGINT", "typer"), ("SIGTERM", "calibudget.cli.main")])
def test_a_signal_while_modules_are_imported_is_an_interruption_like_any_other(sent: str, module: str) -> None:
    done = command(CHILD.format(signal=sent, module=module, last=""))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"calibudget: interrupted; {NOTHING}\n"


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_work_changes_nothing(sent: str) -> None:
    done = command(CHILD.format(signal=sent, module="", last="atexit.register(stop)"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


def test_a_second_signal_takes_neither_the_line_nor_the_code(calibudget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_arguments: Any, **_options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def told_twice() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "that was two"

    monkeypatch.setattr("calibudget.pipeline.verify.verify", stopped)
    monkeypatch.setattr("calibudget.cli.entry.how_to_go_on", told_twice)
    outcome = calibudget("verify", "out")
    assert (outcome.code, outcome.err.removeprefix(BEGUN)) == (3, "calibudget: interrupted; that was two\n")


def test_a_signal_in_a_finalizer_stops_the_command_all_the_same(
    calibudget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    def working(*_arguments: Any, **_options: Any) -> None:
        Dying()
        threading.Event().wait()

    monkeypatch.setattr("calibudget.pipeline.verify.verify", working)
    outcome = calibudget("verify", "out")
    assert (outcome.code, outcome.err.removeprefix(BEGUN)) == (3, f"calibudget: interrupted; {NOTHING}\n")


def command(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)

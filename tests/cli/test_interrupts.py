"""What an interrupted command says: how to go on, by an option only where it has that option."""

import pytest

from calibudget.cli.main import _Stop, app
from calibudget.errors import InterruptedRunError

AGAIN = "nothing finished is lost, the same command goes on from here"
RESUME = "nothing finished is lost, the same command with `--resume` goes on from here"
NOTHING = "there is nothing to resume, give the command again"
LOAD = "calibudget.recipe.load_recipe"


@pytest.mark.parametrize("stop", [_Stop(), InterruptedRunError("stopped after step 3 of 9")])
@pytest.mark.parametrize(
    ("arguments", "where", "words"),
    [
        (["run", "recipe.yaml", "--output-dir", "out"], LOAD, RESUME),
        (["run", "recipe.yaml", "--dry-run"], LOAD, NOTHING),
        (["train", "out"], "calibudget.pipeline.train.train", RESUME),
        (["score", "recipe.yaml"], LOAD, AGAIN),
        (["influence", "recipe.yaml"], "calibudget.pipeline.influence.influence_recipe", AGAIN),
        (["study", "run", "protocol.yaml"], "calibudget.study.protocol.load_protocol", AGAIN),
        (["verify", "out"], "calibudget.pipeline.verify", NOTHING),
        (["study", "report", "out"], "calibudget.study.reporting.report.write_report", NOTHING),
    ],
)
def test_an_interrupted_command_names_what_goes_on(calibudget, monkeypatch, arguments, where, words, stop):
    def stopped(*_arguments, **_options):
        raise stop

    monkeypatch.setattr(where, stopped)
    outcome = calibudget(*arguments)
    told = str(stop) or "interrupted"
    assert (outcome.code, outcome.err) == (3, f"calibudget: {told}; {words}\n")


def test_commands_that_are_told_to_resume_can() -> None:
    from typer.main import get_command

    from calibudget.cli.main import _REPEATED, _RESUMED

    commands = get_command(app).commands
    known = {name for name, command in commands.items() if any(each.name == "resume" for each in command.params)}
    assert known == _RESUMED
    nested = {f"study {name}" for name in commands["study"].commands}
    assert {*commands, *nested} >= _REPEATED

"""The `calibudget` command: registers the commands and turns errors into exit codes.

Exit codes: 0 done, 1 a check failed, 2 the input is wrong, 3 interrupted and resumable, 4 a bug.
Results go to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from calibudget.cli import allocate, evaluate, export, influence, report, run, schema, study, train
from calibudget.cli.interrupts import Stop, how_to_go_on, say
from calibudget.cli.options import Command, with_options_repeated
from calibudget.cli.progress import Begun
from calibudget.errors import CalibudgetError, InterruptedRunError

#: The commands as help lists them, by what they are for.
_COMMANDS: Final[dict[str, list[Any]]] = {
    "The main job": [run.init, run.run, export.export, run.demo],
    "Look at a run": [report.report, report.explain],
    "Check and sign": [run.verify, run.sign],
    "One step of it": [run.score, allocate.statistics, allocate.allocate, run.select, schema.schema],
    "What if": [allocate.whatif, allocate.stability],
    "After it": [train.train, evaluate.evaluate],
    "Research": [study.compare, study.app, influence.influence, influence.app],
}
#: Those that are done before anyone wonders whether they began.
_QUICK: Final = {report.explain, run.sign, schema.schema, *_COMMANDS["What if"], allocate.statistics, allocate.allocate}


class _ByPurpose(TyperGroup):
    """Help that lists commands by what they are for, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        for heading, commands in _COMMANDS.items():
            names = [str(one.info.name if isinstance(one, typer.Typer) else one.__name__) for one in commands]
            helps = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, " ".join((one.help or "").split("\n\n")[0].split()))
                        for name, one in helps.items()
                        if one is not None
                    ]
                )


app = typer.Typer(
    name="calibudget",
    cls=_ByPurpose,
    help="Turn a fixed training budget into exact, calibrated and verifiable quotas per data source.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help needs no rich at start-up
    pretty_exceptions_enable=False,
)
for _command in (command for commands in _COMMANDS.values() for command in commands):
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_command.info.name)
    else:
        app.command(cls=Command if _command in _QUICK else Begun)(_command)


#: What the machine refuses whatever the code: such an error is told in a line, not as a bug.
_OF_THE_MACHINE: Final = {
    "EACCES",
    "EDQUOT",
    "EFBIG",
    "EIO",
    "ELOOP",
    "EMFILE",
    "ENAMETOOLONG",
    "ENFILE",
    "ENOSPC",
    "ENOTDIR",
    "EPERM",
    "EROFS",
    "ESTALE",
}


def _version(show: bool) -> None:
    if show:
        from calibudget.hardware import own_version

        typer.echo(own_version())
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and leave."
    ),
) -> None:
    """Options that belong to no command."""


def exit_code() -> int:
    """Run the command that `sys.argv` names and say how it ended."""
    try:
        result = app(args=with_options_repeated(sys.argv[1:]), standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except InterruptedRunError as error:
        say(f"{error}; {how_to_go_on()}")
        return error.exit_code
    except CalibudgetError as error:
        say(str(error))
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except typer.Abort as error:
        raise Stop from error
    except (BrokenPipeError, SystemExit) as leave:
        if isinstance(leave, SystemExit) and not isinstance(leave.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read stdout has seen enough; the rest goes nowhere
        return 0
    except Exception as error:
        told = _told(error)
        if told is not None:
            say(told)
            return 2
        import traceback

        say(traceback.format_exc())
        say("this is a bug; the lines above say where")
        return 4


def _told(error: Exception) -> str | None:
    """What an error that isn't of our tree says to a person; None where it is a bug."""
    if hasattr(error, "format_message"):  # a usage error of the option parser
        return str(error.format_message())
    if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in _OF_THE_MACHINE:
        return f"{error.filename or 'output'}: {error.strerror}"
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object!r} can't be written in this system's {error.encoding}; set PYTHONUTF8=1 or a UTF-8 locale"
        )
    return None

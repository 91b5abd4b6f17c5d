"""The `calibudget` command: registers the commands and turns errors into exit codes.

Exit codes: 0 done, 1 a check failed, 2 the input is wrong, 3 interrupted and resumable, 4 a bug.
Results go to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

import typer

from calibudget.cli import allocate, evaluate, export, influence, report, run, schema, study, train
from calibudget.cli.interrupts import Stop, how_to_go_on, say
from calibudget.cli.options import with_options_repeated
from calibudget.errors import CalibudgetError, InterruptedRunError

app = typer.Typer(
    name="calibudget",
    help="Turn a fixed training budget into exact, calibrated and verifiable quotas per data source.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help needs no rich at start-up
    pretty_exceptions_enable=False,
)
for _command in (
    run.init,
    run.run,
    run.score,
    allocate.statistics,
    allocate.allocate,
    allocate.whatif,
    allocate.stability,
    run.select,
    run.verify,
    report.report,
    report.explain,
    run.sign,
    train.train,
    export.export,
    evaluate.evaluate,
    study.compare,
    influence.influence,
    schema.schema,
    run.demo,
):
    app.command()(_command)
app.add_typer(influence.app, name="proxy")
app.add_typer(study.app, name="study")


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
        from importlib.metadata import version

        typer.echo(version("calibudget"))
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

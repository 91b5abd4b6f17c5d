"""The `calibudget` command: registers the commands and turns errors into exit codes.

Exit codes: 0 done, 1 a check failed, 2 the input is wrong, 3 interrupted and resumable, 4 a bug.
Results go to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import typer

from calibudget.cli import (
    allocate,
    curves,
    demo,
    evaluate,
    influence,
    init,
    proxy,
    run,
    score,
    select,
    stability,
    statistics,
    study,
    train,
    verify,
    warm_up,
    whatif,
)
from calibudget.errors import CalibudgetError, InterruptedRunError

app = typer.Typer(
    name="calibudget",
    help="Turn a fixed training budget into exact, calibrated and verifiable quotas per data source.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help needs no rich at start-up
    pretty_exceptions_enable=False,
)
for _module in (
    init,
    run,
    score,
    statistics,
    allocate,
    whatif,
    stability,
    select,
    verify,
    train,
    evaluate,
    influence,
    warm_up,
    curves,
    demo,
):
    app.command(name=_module.__name__.rpartition(".")[2].replace("_", "-"))(_module.command)
app.add_typer(proxy.app, name="proxy")
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


#: The commands that go on with `--resume`, and those that go on when they are given again.
_RESUMED: Final = {"run", "train", "evaluate"}
_REPEATED: Final = {"score", "influence", "warm-up", "study run", "study testbed"}


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


def entry() -> None:
    """Run the command line and leave with its exit code."""
    for name in ("stdout", "stderr"):  # a closed one is None, and what is printed to None goes to the other
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    warnings.showwarning = _say
    sys.exit(_exit_code())


def _say(message: Warning | str, *_where: object, **_more: object) -> None:
    with suppress(OSError):  # a full or broken stderr changes no exit code
        print(f"calibudget: {message}", file=sys.stderr, flush=True)


class _Stop(BaseException):
    """A signal asked the command to stop; not a KeyboardInterrupt, which the option parser turns into its own."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _exit_code() -> int:
    try:
        result = app(standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except InterruptedRunError as error:
        _say(f"{error}; {_how_to_go_on()}")
        return error.exit_code
    except CalibudgetError as error:
        _say(str(error))
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except (_Stop, typer.Abort):
        _say(f"interrupted; {_how_to_go_on()}")
        return 3
    except (BrokenPipeError, SystemExit) as leave:
        if isinstance(leave, SystemExit) and not isinstance(leave.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read stdout has seen enough; the rest goes nowhere
        return 0
    except Exception as error:
        told = _told(error)
        if told is not None:
            _say(told)
            return 2
        import traceback

        traceback.print_exc()
        _say("this is a bug; the lines above say where")
        return 4


def _how_to_go_on() -> str:
    command, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if command == "study" and arguments:
        command = f"study {arguments[0]}"
    writes = not {"--dry-run", "--rejudge"}.intersection(arguments)
    if command in _RESUMED and writes:
        return "nothing finished is lost, the same command with `--resume` goes on from here"
    if command in _REPEATED and writes:
        return "nothing finished is lost, the same command goes on from here"
    return "there is nothing to resume, give the command again"


def _told(error: Exception) -> str | None:
    """What an error that isn't of our tree says to a person; None where it is a bug."""
    if hasattr(error, "format_message"):  # a usage error of the option parser
        return str(error.format_message())
    if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in _OF_THE_MACHINE:
        return f"{error.filename or 'output'}: {error.strerror}"
    return None

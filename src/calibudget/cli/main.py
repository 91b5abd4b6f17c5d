"""The `calibudget` command: registers the commands and turns errors into exit codes.

Exit codes: 0 done, 1 a check failed, 2 the input is wrong, 3 interrupted and resumable, 4 a bug.
Results go to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import signal
import sys
import warnings
from types import FrameType

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
from calibudget.errors import CalibudgetError

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
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    warnings.showwarning = _say
    sys.exit(_exit_code())


def _say(message: Warning | str, *_where: object, **_more: object) -> None:
    print(f"calibudget: {message}", file=sys.stderr)


class _Stop(BaseException):
    """A signal asked the command to stop; not a KeyboardInterrupt, which the option parser turns into its own."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _exit_code() -> int:
    try:
        result = app(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except CalibudgetError as error:
        print(f"calibudget: {error}", file=sys.stderr)
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except (_Stop, typer.Abort):
        print("calibudget: interrupted; nothing finished is lost, `--resume` goes on from here", file=sys.stderr)
        return 3
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the option parser
            print(f"calibudget: {error.format_message()}", file=sys.stderr)
            return 2
        import traceback

        traceback.print_exc()
        print("calibudget: this is a bug; the lines above say where", file=sys.stderr)
        return 4

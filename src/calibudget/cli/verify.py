"""`calibudget verify`: re-derive what a run directory says, and name what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibudget.cli.options import Json


def command(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the sources lie: reads them again and re-derives the pools too.")
    ] = None,
    previous: Annotated[
        list[Path] | None, typer.Option(help="A later round's earlier run directories: re-derives its ledger too.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Re-derive everything derivable; exit 0 only if nothing differs."""
    from calibudget.cli.tables import print_verification
    from calibudget.pipeline import ledger_of, verify

    ledger = ledger_of(previous) if previous else None
    verification = verify(run_dir, data_dir=data_dir, previous=ledger)
    print_verification(verification, run_dir, as_json=as_json)
    return 1 if verification.differences else 0

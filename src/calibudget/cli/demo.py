"""`calibudget demo`: the main job on the embedded model and generated sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    output_dir: Annotated[Path, typer.Option(help="Where the generated sources and the run go.")] = Path("demo-run"),
) -> None:
    """Generate eight sources, score them with a real model, allocate, select, verify, compare."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_comparison, print_run
    from calibudget.pipeline import compare_policies, demo, inputs_from_files
    from calibudget.store import SPLITS_NAME, STATISTICS_NAME

    with progress_bar() as progress:
        result = demo(output_dir, progress=progress)
    print_run(result, as_json=False)
    inputs = inputs_from_files(
        statistics=result.directory / STATISTICS_NAME,
        sizes=None,
        splits=result.directory / SPLITS_NAME,
        budget=result.plan.budget,
        floor=result.plan.floor,
    )
    print_comparison(compare_policies(inputs), as_json=False)

"""`calibudget proxy`: check and merge the shards of a pool's proxy scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibudget.cli.options import Json
from calibudget.wording import counted

if TYPE_CHECKING:
    from calibudget.pipeline.proxies import ProxyReport

app = typer.Typer(help="Check and merge proxy scores, the per-candidate scores that a selector may use.")

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Proxy-score files, one a shard.")]
Subgroups = Annotated[
    list[str] | None,
    typer.Option("--subgroup", help="A calibration subgroup; repeat in the frozen order. Default: the paper's eight."),
]
Shards = Annotated[int, typer.Option(min=1, help="Shards that make a complete set.")]
Pool = Annotated[
    Path | None, typer.Option(help="A run directory, or its splits.parquet: the pool that must have been scored.")
]


@app.command()
def validate(
    files: Files, subgroup: Subgroups = None, shards: Shards = 4, pool: Pool = None, as_json: Json = False
) -> None:
    """Check one file in itself, or several as the complete set of a pool's shards."""
    from calibudget.pipeline.proxies import read_proxy_pool, validate_proxy_files
    from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyContract

    contract = ProxyContract(subgroups=tuple(subgroup or PAPER_SUBGROUPS), shards=shards)
    report = validate_proxy_files(files, contract=contract, pool=None if pool is None else read_proxy_pool(pool))
    _show(report, as_json=as_json)


@app.command()
def merge(
    files: Files,
    output: Annotated[Path, typer.Option(help="Write the merged scores here, best candidate first.")],
    subgroup: Subgroups = None,
    shards: Shards = 4,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Merge the complete set of a pool's shards into one file in rank order; refuse anything odd."""
    from calibudget.pipeline.proxies import merge_proxy_files, read_proxy_pool
    from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyContract

    contract = ProxyContract(subgroups=tuple(subgroup or PAPER_SUBGROUPS), shards=shards)
    report = merge_proxy_files(files, output, contract=contract, pool=None if pool is None else read_proxy_pool(pool))
    _show(report, as_json=as_json)


def _show(report: ProxyReport, *, as_json: bool) -> None:
    if as_json:
        from calibudget.cli.tables import print_json

        print_json(report.to_json())
        return
    header = report.header
    part = "all" if header.shard is None else f"shard {header.shard} of {header.shards} of"
    typer.echo(
        f"valid: {counted(report.records, 'record')}, {part} {counted(header.pool_size, 'candidate')}, "
        f"{counted(len(header.subgroups), 'subgroup')}"
    )
    bound = "the pool of the run" if report.pool_checked else "not compared with a run, see --pool"
    typer.echo(f"pool    sha256 {header.pool_sha256} ({bound})")
    if report.output is not None:
        typer.echo(f"merged  {report.output}")

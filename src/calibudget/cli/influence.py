"""`calibudget influence`: proxy scores of every candidate, which a recipe's selector takes.

`calibudget proxy`: check and merge the shards of a pool's proxy scores.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibudget.cli.options import Command, Json
from calibudget.hardware import Device, FrozenDtype
from calibudget.messages import counted

if TYPE_CHECKING:
    from calibudget.pipeline.influence import InfluencePreview, InfluenceResult


def influence(
    target: Annotated[Path, typer.Argument(metavar="RECIPE|RUN_DIR", help="The recipe, or a finished run.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields of the recipe to replace.")
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where warm-up, shards and influence.jsonl go.")] = Path("influence"),
    data_dir: Annotated[Path | None, typer.Option(help="The folder of a run's sources.")] = None,
    warm_up: Annotated[
        list[str] | None, typer.Option(help="A training option of the warm-up, e.g. epochs=1; may repeat.")
    ] = None,
    warm_up_share: Annotated[float, typer.Option(help="The part of each source's candidates in the warm-up.")] = 0.05,
    dimension: Annotated[int, typer.Option(help="Buckets of a gradient's sketch.")] = 8192,
    sketch_seed: Annotated[int, typer.Option(help="Seed of the sketch.")] = 42,
    shards: Annotated[int, typer.Option(min=1, help="How many shards make a complete set.")] = 4,
    shard: Annotated[list[int] | None, typer.Option(help="Score this shard only; may repeat.")] = None,
    device: Annotated[Device, typer.Option(help="Where the model runs.")] = "auto",
    dtype: Annotated[FrozenDtype, typer.Option(help="Precision of the frozen model.")] = "auto",
    batch_tokens: Annotated[int, typer.Option(help="Most tokens per batch.")] = 8192,
    preview: Annotated[
        bool, typer.Option("--dry-run", help="Count, check every record's length, and begin nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score every candidate by what training on it would do for each source's calibration split.

    The same command continues interrupted work. Shards may be scored in processes of
    their own, or on several GPUs: torchrun -m calibudget influence RECIPE.
    """
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_json
    from calibudget.cli.train import told_of
    from calibudget.pipeline.influence import influence, influence_config, influence_recipe, preview_influence
    from calibudget.training.config import Execution

    recipe = influence_recipe(target, overrides or (), data_dir)
    config = influence_config(
        recipe,
        warm_up or (),
        warm_up_share=warm_up_share,
        dimension=dimension,
        sketch_seed=sketch_seed,
        shards=shards,
    )
    run_dir = target if target.is_dir() else None
    with progress_bar() as progress:
        if preview:
            would = preview_influence(recipe, config, run_dir=run_dir, progress=progress)
            print_json(would.to_json()) if as_json else _print_preview(would)
            return
        result = influence(
            recipe,
            output_dir,
            config,
            execution=Execution(device=device, dtype=dtype, batch_tokens=batch_tokens),
            only=shard or (),
            run_dir=run_dir,
            progress=progress,
            listener=told_of(progress),
        )
    if os.environ.get("RANK", "0") == "0":
        print_json(result.to_json()) if as_json else _print(result)


def _print_preview(preview: InfluencePreview) -> None:
    typer.echo(
        f"dry run: {counted(preview.candidates, 'candidate')} of {counted(preview.tokens, 'token')}, the longest of "
        f"{preview.longest:,}; {counted(preview.warm_up_examples, 'example')} would warm up, and "
        f"{counted(sum(preview.calibration.values()), 'calibration record')} of "
        f"{counted(len(preview.calibration), 'source')} are compared with"
    )


def _print(result: InfluenceResult) -> None:
    header = result.header
    typer.echo(
        f"{counted(header.pool_size, 'candidate')}, {counted(len(header.subgroups), 'subgroup')}, warmed up on "
        f"{counted(result.warm_up_examples, 'example')} in {counted(result.warm_up_steps, 'step')}"
    )
    for path in result.shards:
        typer.echo(f"shard       {path}")
    if result.merged is not None:
        typer.echo(f"merged      {result.merged}")
        shards = "" if header.shards == 4 else f", shards: {header.shards}"
        typer.echo(f"to use it   selector: {{influence: {{file: {result.merged}{shards}}}}}   in the recipe")
    else:
        typer.echo("not merged: the other shards are still to be scored")


app = typer.Typer(name="proxy", help="Check and merge proxy scores: scores of candidates for a selector.")
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Proxy-score files, one per shard.")]
Subgroups = Annotated[
    list[str] | None,
    typer.Option("--subgroup", help="A calibration subgroup; repeat in the frozen order. Default: the paper's eight."),
]
Shards = Annotated[int, typer.Option(min=1, help="How many shards make a complete set.")]
Pool = Annotated[
    Path | None, typer.Option(help="A run directory, or its splits.parquet: the pool that the scores must be of.")
]


@app.command(cls=Command)
def validate(
    files: Files, subgroup: Subgroups = None, shards: Shards = 4, pool: Pool = None, as_json: Json = False
) -> None:
    """Check one file in itself, or several as the complete set of a pool's shards."""
    _check(files, None, subgroup, shards, pool, as_json=as_json)


@app.command(cls=Command)
def merge(
    files: Files,
    output: Annotated[Path, typer.Option(help="The file for the merged scores, best candidate first.")],
    subgroup: Subgroups = None,
    shards: Shards = 4,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Merge the complete set of a pool's shards into one file in rank order; refuse anything odd."""
    _check(files, output, subgroup, shards, pool, as_json=as_json)


def _check(
    files: list[Path], output: Path | None, subgroup: list[str] | None, shards: int, pool: Path | None, *, as_json: bool
) -> None:
    from calibudget.cli.tables import print_json
    from calibudget.pipeline.proxy_files import check_proxy_files, read_proxy_pool
    from calibudget.selection.proxy import PAPER_SUBGROUPS, ProxyContract

    contract = ProxyContract(subgroups=tuple(subgroup or PAPER_SUBGROUPS), shards=shards)
    of_run = None if pool is None else read_proxy_pool(pool)
    report = check_proxy_files(files, output, contract=contract, pool=of_run)
    if as_json:
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

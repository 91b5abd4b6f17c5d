"""The commands of the main job: `init`, `run`, `score`, `select`, `verify`, and the `demo` of all of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from calibudget.cli.options import Address, Engine, Json, Overrides, RecipePath, ReportTo, Verdict, Workers, with_engine
from calibudget.errors import InputError


def init(
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="The folder that holds the sources' files.")],
    output: Annotated[Path, typer.Option(help="The recipe to write; - for stdout.")] = Path("recipe.yaml"),
) -> None:
    """Write a commented recipe for the data files found in a folder."""
    from calibudget.cli.schema import as_text
    from calibudget.messages import counted, printable
    from calibudget.pipeline.init import SCHEMA_SUFFIX, draft_recipe
    from calibudget.pipeline.run_directory import check_no_run
    from calibudget.store.files import write_atomic

    if str(output) != "-":
        check_no_run(output.parent)
    text, left_out = draft_recipe(data_dir, written_to=None if str(output) == "-" else output)
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    if output.exists():
        raise InputError(f"{output} exists already; name another file with --output")
    schema = output.with_suffix(SCHEMA_SUFFIX)
    if not schema.exists():
        write_atomic(schema, as_text("recipe").encode())
    write_atomic(output, f"# yaml-language-server: $schema={printable(schema.name)}\n{text}".encode())
    told = f"; {counted(left_out, 'file')} left out, with the reason" if left_out else ""
    typer.echo(f"{output} written, and {schema.name} for editors{told}; look it over, then: calibudget run {output}")


def run(
    recipe: RecipePath,
    overrides: Overrides = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="The run directory to write. Default: runs/ and the recipe's name.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same recipe.")] = False,
    preview: Annotated[
        bool,
        typer.Option("--dry-run", help="Show counts, tokens and the expected time (from one scored batch); don't run."),
    ] = False,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="Use scores made elsewhere (by `calibudget score`, or for the texts of `score --export`), without a "
            "model. May repeat: several files are joined by record."
        ),
    ] = None,
    verdict: Verdict = None,
    engine: Engine = None,
    workers: Workers = None,
    address: Address = None,
    report_to: ReportTo = None,
    as_json: Json = False,
) -> None:
    """Split, score, allocate, select and verify, into one run directory."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_dry_run, print_hygiene, print_json, print_run
    from calibudget.pipeline.dry_run import dry_run
    from calibudget.pipeline.run import run
    from calibudget.recipe.load import load_recipe
    from calibudget.store.artefacts import ALLOCATION
    from calibudget.training.trackers import check_trackers, report_once

    check_trackers(report_to or ())
    loaded = load_recipe(recipe, with_engine(overrides, engine, workers, address))
    with progress_bar() as progress:
        if preview:
            dry = dry_run(loaded, scores=scores, verdict=verdict, progress=progress)
            print_json(dry.to_json()) if as_json else print_dry_run(dry)
            return
        result = run(
            loaded,
            output_dir or Path("runs") / recipe.stem,
            resume=resume,
            scores=scores,
            verdict=verdict,
            progress=progress,
        )
    if result.hygiene is not None and not as_json:
        print_hygiene(result.hygiene)
    print_json(result.to_json()) if as_json else print_run(result)
    beside = result.directory.absolute()
    beside = beside.with_name(f"{beside.name}.tensorboard")
    factors = ALLOCATION.to_json(result.plan)["sources"]
    report_once(report_to or (), beside, result.to_json() | {"factors": factors})


def score(
    recipe: RecipePath,
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="The scores file to write.")] = Path("scores.parquet"),
    shard: Annotated[
        str | None, typer.Option(help="Score only part i of n, as i/n, e.g. on one of several machines.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Don't score: write the calibration records as rendered text (JSONL) for another scorer."),
    ] = None,
    engine: Engine = None,
    workers: Workers = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Score the calibration split of every source; `run --scores` takes the file on any machine.

    The same command continues interrupted scoring. `score merge FILES` puts the parts
    that `--shard` wrote together.
    """
    from calibudget.cli.interrupts import say
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_json, print_line, print_scores
    from calibudget.messages import counted
    from calibudget.pipeline.run_notes import FAKE_NOTE
    from calibudget.pipeline.score import export_calibration, merge_scores, score
    from calibudget.recipe.load import load_recipe

    if str(recipe) == "merge":
        given = {"--shard": shard, "--engine": engine, "--workers": workers, "--address": address}
        if named := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{named[0]}: `score merge` scores nothing")
        print_scores(merge_scores(overrides or (), output), output, as_json=as_json)
        return
    if export is not None and (shard is not None or output != Path("scores.parquet")):
        raise InputError("--export scores nothing: it goes with neither --output nor --shard")
    loaded = load_recipe(recipe, with_engine(overrides, engine, workers, address))
    with progress_bar() as progress:
        if export is not None:
            count = export_calibration(loaded, export, progress=progress)
            told = {"schema": "calibudget.score/1", "export": str(export), "records": count}
            print_json(told) if as_json else print_line(f"{counted(count, 'calibration record')} as text, in {export}")
            return
        scores = score(loaded, output=output, progress=progress, shard=None if shard is None else _shard(shard))
    print_scores(scores, output, as_json=as_json)
    if loaded.engine == "fake":
        say(FAKE_NOTE)


def _shard(text: str) -> Any:
    from calibudget.scoring.batches import Shard

    numbers = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if numbers is None:
        raise InputError(f"--shard {text!r}: say which of how many, as 3/8")
    return Shard(index=int(numbers[1]), count=int(numbers[2]))


def select(
    recipe: RecipePath,
    overrides: Overrides = None,
    allocation: Annotated[Path, typer.Option(help="The allocation.json whose quotas to draw.")] = ...,  # type: ignore[assignment]
    output_dir: Annotated[Path, typer.Option(help="The folder for the train set and its evidence.")] = ...,  # type: ignore[assignment]
    as_json: Json = False,
) -> None:
    """Draw exactly the quotas of an allocation and write the train set."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_json, print_selection
    from calibudget.pipeline.select import select
    from calibudget.recipe.load import load_recipe
    from calibudget.store.artefacts import SELECTION, digest_selection

    loaded = load_recipe(recipe, overrides or ())
    with progress_bar() as progress:
        selection = select(loaded, allocation, output_dir, progress=progress)
    if as_json:
        print_json(SELECTION.to_json(digest_selection(selection)))
    else:
        print_selection(selection, output_dir)


def verify(
    run_dir: Annotated[
        Path | None, typer.Argument(metavar="[RUN_DIR]", help="A finished run directory.", show_default=False)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The sources' folder: also read them again and derive the pools.")
    ] = None,
    previous: Annotated[
        list[Path] | None, typer.Option(help="Of a later round: its earlier run directories, to derive its ledger too.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The signer's key, a PEM file: also check the signature.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that scored: also score a sample again (needs --data-dir).")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many calibration records to score again.")] = 20,
    distribution: Annotated[
        bool,
        typer.Option("--distribution", help="Check the files of calibudget itself, or of an unpacked sdist."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Derive a run again from its evidence; exit 0 only if nothing differs."""
    from calibudget.cli.tables import print_json, print_verification
    from calibudget.pipeline.rounds import ledger_of
    from calibudget.pipeline.verify import check_distribution, verify

    if distribution:
        found = check_distribution(run_dir)
    elif run_dir is None:
        raise InputError("name the run directory to verify, or --distribution")
    else:
        ledger = ledger_of(previous) if previous else None
        found = verify(run_dir, data_dir=data_dir, previous=ledger, key=key, model=model, sample=sample)
    print_json(found.to_json()) if as_json else print_verification(found, run_dir or Path("calibudget"))
    return 1 if found.differences else 0


def sign(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run directory.")],
    key: Annotated[Path, typer.Option(help="The private key, a PEM file of Ed25519, ECDSA or RSA.")],
) -> None:
    """Sign the digests of a run that verifies, in signature.dsse.json."""
    from calibudget.cli.tables import print_line
    from calibudget.pipeline.sign import sign

    print_line(f"{run_dir}: signed; key {sign(run_dir, key)}")


def demo(
    output_dir: Annotated[Path, typer.Option(help="Where the generated sources and the run go.")] = Path("demo-run"),
    model: Annotated[
        str, typer.Option(help="A hub id, a directory, a .gguf file, or embedded (SmolLM2).")
    ] = "embedded",
) -> None:
    """Try the main job on generated sources and a real model."""
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_comparison, print_hygiene, print_line, print_run
    from calibudget.pipeline.allocate import compare_policies, request_from_files
    from calibudget.pipeline.demo import demo
    from calibudget.store.artefacts import STATISTICS
    from calibudget.store.splits import SPLITS_NAME

    with progress_bar() as progress:
        result = demo(output_dir, model=model, progress=progress)
    if result.hygiene is not None:
        print_hygiene(result.hygiene)
    print_run(result)
    request, pools = request_from_files(
        result.plan.policy,
        statistics=result.directory / STATISTICS.name,
        sizes=None,
        splits=result.directory / SPLITS_NAME,
        budget=result.plan.budget,
        floor=result.plan.floor,
    )
    print_comparison(compare_policies(request, pools))
    print_line(f"next        calibudget report {shlex.quote(str(result.directory))}")

"""The commands about quotas alone: `statistics`, `allocate`, `whatif` and `stability`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from calibudget.cli.options import (
    Caps,
    Floors,
    Groups,
    Json,
    MaxRepeats,
    NeedTransform,
    PoolSizes,
    Signal,
    Sizes,
    Splits,
    UnitOption,
    Verdict,
    Weights,
    amount,
    by_label,
    comma_separated,
    mapping,
    numbers,
    sizes_by_label,
    weights_by_label,
    whole_number,
)
from calibudget.errors import InputError

StatisticsPath = Annotated[
    Path | None, typer.Argument(metavar="[STATISTICS|RUN_DIR]", help="A statistics.json, or a run directory with one.")
]
PolicyName = Annotated[str, typer.Option(help="The rule for the budget above the floor.")]
Budgets = Annotated[
    list[str] | None, typer.Option(help="Budgets, integers; with commas, or repeated. Default: the RUN_DIR's.")
]


def _asked(statistics: Path | None, budget: str | None, floor: str | None) -> tuple[str, str]:
    """Budget and common floor as options or else a run directory say them."""
    if statistics is not None and not statistics.exists():
        raise InputError(f"{statistics}: no such statistics file or run directory")
    if statistics is not None and statistics.is_dir() and (budget is None or floor is None):
        from calibudget.cli.interrupts import say
        from calibudget.store.artefacts import ALLOCATION

        plan = ALLOCATION.read(statistics / ALLOCATION.name)
        more = [name for name in ("floors", "caps", "groups") if getattr(plan, name)]
        if more:
            say(f"{statistics}: its own {' and '.join(more)} aren't taken over; options give them")
        budget, floor = budget or str(plan.budget), floor or str(plan.floor)
    if budget is None:
        raise InputError("say what to allocate (--budget), or name a run directory, whose budget it then is")
    return budget, floor or "0"


def _bounds(floors: list[str] | None, caps: list[str] | None, groups: str | None) -> dict[str, Any]:
    """What the options say that a request's quotas must keep to."""
    return {
        "floors": by_label(floors, "--floors", amount, "an amount"),
        "caps": by_label(caps, "--caps", amount, "an amount"),
        "groups": mapping(groups, "--groups"),
    }


def statistics(
    scores: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCORES...",
            help="Scores: Parquet, JSONL (source, nll, correct[, record_id]), lm-eval's samples_*.jsonl or Inspect's "
            "logs. Several files are joined by record.",
        ),
    ],
    pool_sizes: Annotated[
        list[str],
        typer.Option(help="Pool sizes as label=n, as a JSON object, or as a splits.parquet; may repeat."),
    ],
    error: Annotated[
        Literal["nll+wrong", "nll", "nll_per_answer"] | None,
        typer.Option(help="The error of a record. Default: as scored."),
    ] = None,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples per source.")] = 200,
    bootstrap_seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 42,
    verdict: Verdict = None,
    output: Annotated[Path | None, typer.Option(help="Write here instead of stdout.")] = None,
) -> None:
    """Compute the statistics that `allocate` takes from scores."""
    from calibudget.pipeline.run_directory import check_no_run
    from calibudget.pipeline.statistics import statistics_of_file
    from calibudget.store.artefacts import STATISTICS
    from calibudget.store.canonical import canonical_json

    if output is not None:
        check_no_run(output.parent)
    statistics = statistics_of_file(
        *scores,
        pool_sizes=sizes_by_label(pool_sizes) or {},
        error=error,
        verdict=verdict,
        resamples=resamples,
        bootstrap_seed=bootstrap_seed,
    )
    if output is None:
        typer.echo(canonical_json(STATISTICS.to_json(statistics)).decode())
    else:
        STATISTICS.write(output, statistics)


def allocate(
    statistics: StatisticsPath = None,
    budget: Annotated[str | None, typer.Option(help="The budget, an integer. Default: the RUN_DIR's.")] = None,
    floor: Annotated[
        str | None,
        typer.Option(help="Floor of every source: an integer, or '10% of budget'. Default: the RUN_DIR's, or 0."),
    ] = None,
    policy: PolicyName = "calibudget",
    sizes: Sizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    weights: Weights = None,
    signal: Signal = "error_rate",
    need_exponent: Annotated[float, typer.Option()] = 1.0,
    availability_exponent: Annotated[float, typer.Option()] = 0.5,
    reliability_exponent: Annotated[float, typer.Option()] = 1.0,
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    compare: Annotated[bool, typer.Option("--compare", help="Show other policies beside it.")] = False,
    splits: Splits = None,
    unit: UnitOption = "examples",
    as_json: Json = False,
) -> None:
    """Show exact integer quotas; with --json as an allocation.json."""
    from calibudget.cli.tables import print_comparison, print_json, print_plan, warn_of_hashes
    from calibudget.pipeline.allocate import compare_policies, plan_allocation, request_from_files
    from calibudget.records import Exponents
    from calibudget.store.artefacts import ALLOCATION

    asked, least = _asked(statistics, budget, floor)
    request, pools = request_from_files(
        policy,
        statistics=statistics,
        sizes=by_label(sizes, "--sizes", int, "an integer"),
        splits=splits,
        unit=unit,
        max_repeats=max_repeats,
        budget=whole_number(asked, "--budget"),
        floor=amount(least),
        **_bounds(floors, caps, groups),
        weights=weights_by_label(weights),
        signal=signal,
        exponents=Exponents(need=need_exponent, availability=availability_exponent, reliability=reliability_exponent),
        need_transform=need_transform,
    )
    if compare:
        compared = compare_policies(request, pools)
        print_json(compared.to_json()) if as_json else print_comparison(compared)
    else:
        plan = plan_allocation(request, pools)
        print_json(ALLOCATION.to_json(plan)) if as_json else print_plan(plan)
        if request.floor or request.floors:
            _tell_of_floors(request.policy)
    warn_of_hashes(request.statistics)


def _tell_of_floors(policy: str) -> None:
    from calibudget.allocation.policies import policy_named

    if not policy_named(policy).has_floor:
        typer.echo(f"the policy {policy!r} knows no floor: it isn't used, and counts as 0", err=True)


def whatif(
    statistics: StatisticsPath = None,
    budget: Budgets = None,
    floor: Annotated[
        list[str] | None,
        typer.Option(help="Floors: integers, or '10% of budget'; likewise. Default: the RUN_DIR's, or 0."),
    ] = None,
    need_exponent: Annotated[list[str], typer.Option(help="Exponents of need; likewise.")] = ["1"],  # noqa: B006
    availability_exponent: Annotated[list[str], typer.Option(help="Exponents of availability.")] = ["0.5"],  # noqa: B006
    reliability_exponent: Annotated[list[str], typer.Option(help="Exponents of reliability.")] = ["1"],  # noqa: B006
    policy: PolicyName = "calibudget",
    sizes: Sizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    weights: Weights = None,
    signal: Signal = "error_rate",
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    splits: Splits = None,
    unit: UnitOption = "examples",
    as_json: Json = False,
) -> None:
    """Show the quotas for every combination of budgets, floors and exponents."""
    from calibudget.cli.tables import print_grid, print_json, warn_of_hashes
    from calibudget.pipeline.allocate import request_from_files
    from calibudget.pipeline.whatif import explore
    from calibudget.records import Exponents

    asked, least = _asked(statistics, budget[0] if budget else None, floor[0] if floor else None)
    budgets = [whole_number(text, "--budget") for text in comma_separated(budget or [asked])]
    request, pools = request_from_files(
        policy,
        statistics=statistics,
        sizes=by_label(sizes, "--sizes", int, "an integer"),
        splits=splits,
        unit=unit,
        max_repeats=max_repeats,
        budget=budgets[0],
        **_bounds(floors, caps, groups),
        weights=weights_by_label(weights),
        signal=signal,
        need_transform=need_transform,
    )
    points = explore(
        request,
        pools,
        budgets=budgets,
        floors=[amount(text) for text in comma_separated(floor or [least])],
        exponents=[
            Exponents(need=need, availability=availability, reliability=reliability)
            for need in numbers(need_exponent, "--need-exponent")
            for availability in numbers(availability_exponent, "--availability-exponent")
            for reliability in numbers(reliability_exponent, "--reliability-exponent")
        ],
    )
    grid = [asdict(point) for point in points]
    body = {"schema": "calibudget.whatif/1", "policy": policy, "unit": request.unit, "points": grid}
    print_json(body) if as_json else print_grid(policy, request.unit, points)
    if floor or floors:
        _tell_of_floors(policy)
    warn_of_hashes(request.statistics)


def stability(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A statistics.json or a scores file for each split.")
    ],
    budget: Annotated[str, typer.Option(help="The budget, an integer.")] = ...,  # type: ignore[assignment]
    floor: Annotated[str, typer.Option(help="Floor of every source: an integer, or '10% of budget'.")] = "0",
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy to compare; may repeat. Default: those that need scores.")
    ] = None,
    pool_sizes: PoolSizes = None,
    floors: Floors = None,
    caps: Caps = None,
    groups: Groups = None,
    signal: Signal = "error_rate",
    need_exponent: Annotated[float, typer.Option()] = 1.0,
    availability_exponent: Annotated[float, typer.Option()] = 0.5,
    reliability_exponent: Annotated[float, typer.Option()] = 1.0,
    need_transform: NeedTransform = None,
    max_repeats: MaxRepeats = 1,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples per source of a scores file.")] = 200,
    bootstrap_seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 42,
    as_json: Json = False,
) -> None:
    """Show how far quotas move between independently drawn calibration splits."""
    from calibudget.allocation.plan import AllocationRequest
    from calibudget.cli.tables import print_audit, print_json
    from calibudget.pipeline.whatif import audit, read_measured
    from calibudget.records import Exponents

    sizes = sizes_by_label(pool_sizes)
    measured = [
        read_measured(path, pool_sizes=sizes, resamples=resamples, bootstrap_seed=bootstrap_seed) for path in files
    ]
    request = AllocationRequest(
        policy="calibudget",
        pool_sizes={},
        budget=whole_number(budget, "--budget"),
        floor=amount(floor),
        **_bounds(floors, caps, groups),
        signal=signal,
        exponents=Exponents(need=need_exponent, availability=availability_exponent, reliability=reliability_exponent),
        need_transform=need_transform,
    )
    found = audit(measured, request, policies=policy or (), max_repeats=max_repeats)
    print_json(found.to_json()) if as_json else print_audit(found)

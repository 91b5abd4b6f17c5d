"""Tables that a person likes to read, and the canonical JSON of the same things for machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from calibudget.allocation.utility_factors import FACTORS
from calibudget.errors import InputError
from calibudget.messages import counted, first_of, printable
from calibudget.records import AllocationPlan, Exponents, Score, Selection, Statistics, Unit
from calibudget.store.canonical import canonical_json
from calibudget.store.manifest import MANIFEST

if TYPE_CHECKING:
    from calibudget.allocation.stability import WhatIf
    from calibudget.pipeline.allocate import Comparison
    from calibudget.pipeline.dry_run import DryRun
    from calibudget.pipeline.run import RunResult
    from calibudget.pipeline.verify import Verification
    from calibudget.pipeline.whatif import StabilityAudit
    from calibudget.sources.hygiene.artefact import Hygiene

#: The most rows that a terminal shows; of more the largest and the smallest ones, so many of each.
_MOST_ROWS: Final = 60
_LARGEST: Final = 20
_SMALLEST: Final = 10
#: The most sources that a grid shows side by side.
_MOST_COLUMNS: Final = 20
#: Wider than any table, in characters.
_UNBOUNDED: Final = 1_000_000


def print_run(result: RunResult) -> None:
    """A finished run: its quotas, and where the evidence lies."""
    print_plan(result.plan)
    companion = f" and {result.companion_count:,} of the companion set" if result.companion_count else ""
    selected = counted(result.count, "example") + (
        "" if result.tokens is None else f" of {counted(result.tokens, 'token')}"
    )
    print_line(f"{selected} selected{companion}; everything re-derived and verified.")
    for note in result.notes:
        print_line(f"note: {note}")
    print_line(f"train set   {result.train_file}")
    if result.train_set:  # a run of an earlier version doesn't say
        end = result.train_set["end"]
        print_line(f"taught      {result.train_set['taught']}" + (f", up to {end}" if end else ""))
    print_line(f"evidence    {result.directory / MANIFEST.name}")
    print_line(f"selected    sha256 {result.selected_sha256}")


def print_plan(plan: AllocationPlan) -> None:
    """One allocation: the factors and the quota of each source."""
    columns = _plan_columns(plan)
    width = sum(max(map(len, [head, *cells])) + 2 for head, cells in columns.items())
    left_out = [head for head in ("utility", "share") if width > _console().width]
    shown = {head: cells for head, cells in columns.items() if head not in left_out}
    title = f"{plan.policy}: {plan.budget:,} {plan.unit}, floor {plan.floor:,}, residual {plan.residual_budget:,}"
    table = new_table(title, shown)
    table.columns[list(shown).index("quota")].style = "bold"
    *rows, total = zip(*shown.values(), strict=True)
    _print_rows(table, rows, list(plan.quotas.values()), "quotas", total=total)
    if left_out:
        print_line(f"{' and '.join(left_out)} need a wider terminal, or `calibudget explain`")
    for line in (*_bounds(plan), *_group_lines(plan)):
        print_line(line)


def _plan_columns(plan: AllocationPlan) -> dict[str, list[str]]:
    """The cells of a plan's table by head, the totals last."""
    rows = list(plan.sources.values())
    columns = {
        "source": [*plan.sources, "total"],
        "pool": [*(f"{row.pool_size:,}" for row in rows), f"{sum(row.pool_size for row in rows):,}"],
        "floor": [*(f"{row.floor_quota:,}" for row in rows), f"{sum(row.floor_quota for row in rows):,}"],
    }
    if any(row.need is not None for row in rows):
        columns["need"] = [*(_number(row.need) for row in rows), ""]
        columns["reliability"] = [*(_number(row.reliability) for row in rows), ""]
    columns["utility"] = [*(_number(row.utility) for row in rows), ""]
    columns["share"] = [*(f"{row.share:,.2f}" for row in rows), f"{plan.residual_budget:,}"]
    columns["quota"] = [*(f"{row.quota:,}" for row in rows), f"{plan.budget:,}"]
    if any(row.interval is not None for row in rows):
        ends = (f"{row.interval[0]:,} - {row.interval[1]:,}" if row.interval else "" for row in rows)
        columns["95% interval"] = [*ends, ""]
    return columns


def _bounds(plan: AllocationPlan) -> Iterator[str]:
    """Which sources got all that their cap or their pool allows."""
    for bound in ("pool", "cap"):
        labels = [label for label in plan.sources if plan.bound_of(label) == bound]
        if labels:
            yield f"{bound} reached: {first_of(labels)}"


def warn_of_hashes(statistics: Statistics | None) -> None:
    """Say so, on stderr, where hashes stand for the scores that quotas are made of."""
    if statistics is not None and statistics.model.get("name") == "fake":
        from calibudget.cli.interrupts import say
        from calibudget.pipeline.run_notes import FAKE_NOTE

        say(FAKE_NOTE)


def print_comparison(comparison: Comparison) -> None:
    """The quotas of several policies side by side."""
    plans = comparison.plans
    first = next(iter(plans.values()))
    rows = [[label, *(f"{plan.sources[label].quota:,}" for plan in plans.values())] for label in first.quotas]
    table = new_table(f"quotas in {first.unit} under every policy", ["source", *plans])
    _print_rows(table, rows, list(first.quotas.values()), f"quotas under {next(iter(plans))}")
    for why in comparison.left_out.values():
        print_line(f"left out: {why}")


def print_scores(scores: Sequence[Score], output: Path, *, as_json: bool) -> None:
    """What was scored, source by source."""
    by_source: dict[str, list[Score]] = {}
    for score in scores:
        by_source.setdefault(score.source, []).append(score)
    rows = {
        label: {"scored": len(group), "mean_nll": sum(score.nll for score in group) / len(group)}
        for label, group in sorted(by_source.items())
    }
    if as_json:
        print_json({"schema": "calibudget.score/1", "output": str(output), "sources": rows})
        return
    cells = []
    for label, group in sorted(by_source.items()):
        checked = [score.correct for score in group if score.correct is not None]
        wrong = f"{checked.count(False) / len(checked):.0%}" if checked else ""
        cells.append([label, f"{len(group):,}", f"{rows[label]['mean_nll']:.3f}", wrong])
    title = f"{counted(len(scores), 'calibration record')} scored, in {output}"
    table = new_table(title, ["source", "scored", "mean NLL", "wrong"])
    _print_rows(table, cells, [row["mean_nll"] for row in rows.values()], "mean NLLs")


def print_selection(selection: Selection, output_dir: Path) -> None:
    """What was drawn."""
    counts = {label: len(picks) for label, picks in selection.picks.items()}
    table = new_table(f"drawn with selection seed {selection.seed}, in {output_dir}", ["source", "picked"])
    _print_rows(table, [[label, f"{count:,}"] for label, count in counts.items()], list(counts.values()), "counts")


def print_verification(verification: Verification, run_dir: Path) -> None:
    """What was re-derived, and what differs."""
    if verification.unfinished:
        print_line(f"{run_dir}: this run is unfinished; `calibudget run --resume` continues it")
        return
    for difference in verification.differences:
        print_line(f"differs  {difference}")
    for check in verification.checked if not verification.differences else ():
        print_line(f"ok  {check}")
    for level, state in verification.levels.items():
        print_line(f"level  {level}: {state}")
    count = len(verification.differences)
    print_line(f"{run_dir}: {'nothing differs' if not count else counted(count, 'difference')}")


def print_dry_run(dry: DryRun) -> None:
    """What a run would do."""
    evaluates = any(row.evaluation for row in dry.sources.values())
    heads = ["source", "read", "duplicates", "skipped", "shared prompts", "calibration"]
    heads += [*(["evaluation", "its twins"] if evaluates else []), "pool"]
    heads += [*(["pool tokens"] if dry.unit == "tokens" else []), "tokens to score"]
    rows = []
    for label, row in dry.sources.items():
        cells = [row.read, row.duplicates, row.skipped, row.shared_prompts, row.calibration]
        cells += [*([row.evaluation or 0, row.evaluation_twins or 0] if evaluates else []), row.pool_size]
        cells += [] if row.pool_tokens is None else [row.pool_tokens]
        rows.append([label, *(f"{cell:,}" for cell in cells), "" if row.tokens is None else f"{row.tokens:,}"])
    title = f"dry run: {dry.budget:,} {dry.unit}, floors {dry.floor_total:,}, residual {dry.residual_budget:,}"
    _print_rows(new_table(title, heads), rows, [row.pool_size for row in dry.sources.values()], "pools")
    if dry.seconds_expected is not None:
        print_line(f"scoring is expected to take {dry.seconds_expected:,.0f} s, by one batch of it")
    if dry.companion_count:
        print_line(f"joined unchanged: {counted(dry.companion_count, 'companion record')}")


def _group_lines(plan: AllocationPlan) -> Iterator[str]:
    """What each group got, and its bounds; groups within it follow, indented."""
    quotas, groups = plan.quotas, plan.all_groups
    for path, group in groups.items():
        within = (one["sources"] for other, one in groups.items() if other[: len(path)] == path)
        quota = sum(quotas[label] for sources in within for label in sources)
        cap = "" if group["cap"] is None else f", cap {group['cap']:,}"
        yield f"{'  ' * (len(path) - 1)}group {path[-1]}: {quota:,} (floor {group['floor']:,}{cap})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def new_table(title: str, heads: Iterable[str] = ()) -> Table:
    """A table in the house style, its first column to the left and the others, which hold numbers, to the right."""
    table = Table(title=title, title_justify="left", header_style="bold", row_styles=("", "dim"), expand=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    return table


def _print_rows(
    table: Table,
    rows: Sequence[Sequence[str]],
    sizes: Sequence[float],
    named: str,
    *,
    total: Sequence[str] = (),
    folds: bool = False,
) -> None:
    """A table with these rows; on a terminal, of very many, those with the largest and the smallest sizes, so named."""
    shown = rows
    if _is_short(rows):
        ordered = [rows[place] for place in sorted(range(len(rows)), key=lambda place: -sizes[place])]
        between = f"({len(rows) - _LARGEST - _SMALLEST:,} between)"
        shown = [*ordered[:_LARGEST], [between], *ordered[-_SMALLEST:]]
    for row in shown:
        table.add_row(*map(printable, row))
    if total:
        table.add_section()
        table.add_row(*total)
    print_table(table, folds=folds)
    if _is_short(rows):
        most = f"the {_LARGEST} largest and the {_SMALLEST} smallest {named} of {len(rows):,}"
        print_line(f"{most}; all through a pipe (`| less`), with --json, or in `calibudget report`")


def _is_short(rows: Sequence[object]) -> bool:
    """Whether so many rows aren't shown whole here."""
    return len(rows) > _MOST_ROWS and sys.stdout.isatty()


def print_table(table: Table, *, folds: bool = False) -> None:
    """A table on stdout, whole: on a terminal too narrow for it without its frame, and if need be wider than that.

    One that `folds` is of words, whose lines may be folded instead.
    """
    out = _console()
    if not folds and _width(out, table) > out.width:
        table.box, table.padding = None, (0, 2, 0, 0)
        out.size = (max(out.width, _width(out, table)), out.height)  # both, or a dumb terminal keeps its 80 columns
    out.print(table)


def print_line(text: str) -> None:
    """A line on stdout, as it is: nothing in it is markup, no digest or path is broken, and no name ends it."""
    _console().print(printable(text), soft_wrap=True)


def _console() -> Console:
    # Where nothing says how wide a line is, only what is wider than this loses its frame.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return Console(width=width, highlight=False, markup=False, emoji=False)


def _width(out: Console, table: Table) -> int:
    return Measurement.get(out, out.options.update(max_width=_UNBOUNDED), table).maximum


def print_json(value: object) -> None:
    """Canonical JSON on stdout.

    Raises:
        InputError: a value that JSON can't hold, an integer beyond 2**53 - 1 say; the field is named.
    """
    try:
        data = canonical_json(value)
    except InputError as error:
        raise InputError(f"--json: {error}; without --json it is told in a table") from error
    sys.stdout.write(data.decode("utf-8") + "\n")


def print_hygiene(hygiene: Hygiene) -> None:
    """What was noticed, one line a finding, with what was done; nothing where nothing was."""
    from calibudget.pipeline.run_notes import noticed

    rows = noticed(hygiene)
    if not rows:
        return
    table = new_table("what sources repeat and share")
    for column in ("source", "records", "found", "done"):
        table.add_column(column, justify="right" if column == "records" else "left", no_wrap=column != "found")
    before = ""
    cells = []
    for row in rows:
        hides = row.source == before and not _is_short(rows)
        cells.append(["" if hides else row.source, f"{row.records:,}", row.found, row.done])
        before = row.source
    _print_rows(table, cells, [row.records for row in rows], "findings", folds=True)


def print_grid(policy: str, unit: Unit, points: Sequence[WhatIf]) -> None:
    """The quotas at every point of a grid, one row a point."""
    varied = [name for name in FACTORS if len({getattr(point.exponents, name) for point in points}) > 1]
    labels = next(tuple(point.quotas) for point in points if point.quotas is not None)
    title = f"{policy}: quotas in {unit} over the grid{_fixed(points[0].exponents, varied)}"
    heads = ["budget", "floor", *(f"{name}^" for name in varied), "residual", *labels]
    lines = []
    for point in points:
        place = [f"{point.budget:,}", f"{point.floor:,}" if isinstance(point.floor, int) else str(point.floor)]
        place += [f"{getattr(point.exponents, name):g}" for name in varied]
        quotas = [""] * len(labels) if point.quotas is None else [f"{point.quotas[label]:,}" for label in labels]
        lines.append([*place, "" if point.residual_budget is None else f"{point.residual_budget:,}", *quotas])
    if len(labels) > _MOST_COLUMNS:
        _print_turned(title, list(zip(heads, *lines, strict=True)), len(labels))
    else:
        table = new_table(title, heads)
        for line in lines:
            table.add_row(*line)
        print_table(table)
    for point in points:
        if point.refusal is not None:
            print_line(f"budget {point.budget:,}, floor {point.floor}: {point.refusal}")


def _print_turned(title: str, rows: Sequence[Sequence[str]], sources: int) -> None:
    """A grid of many sources, a row each, under what each point asks for."""
    (heads, *asked), quotas = rows[:-sources], rows[-sources:]
    table = new_table(title, heads)
    for row in asked:
        table.add_row(*row)
    table.add_section()
    sizes = [max(int(cell.replace(",", "") or 0) for cell in row[1:]) for row in quotas]
    _print_rows(table, quotas, sizes, "quotas")


def print_audit(found: StabilityAudit) -> None:
    """How far quotas move between calibration splits, policy by policy."""
    heads = ("policy", "mean quota sd", "largest range", "smallest Spearman", "smallest Pearson")
    table = new_table(f"quotas over {counted(found.splits, 'calibration split')}", heads)
    for policy, row in found.policies.items():
        correlations = (_correlation(row.smallest_spearman), _correlation(row.smallest_pearson))
        table.add_row(policy, f"{row.mean_quota_sd:,.2f}", f"{row.largest_range:,}", *correlations)
    print_table(table)


def _fixed(exponents: Exponents, varied: Sequence[str]) -> str:
    """The exponents that don't vary, where they aren't the paper's."""
    if exponents == Exponents():
        return ""
    others = [f"{name}^{getattr(exponents, name):g}" for name in FACTORS if name not in varied]
    return f" ({', '.join(others)})" if others else ""


def _correlation(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"

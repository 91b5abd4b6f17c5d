"""What the numbers support and what they don't, in plain words (paper, appendix, Table "Claim boundary")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from calibudget.allocation import stability
from calibudget.study.reporting.certainty import Judged, judge
from calibudget.study.reporting.comparisons import paired
from calibudget.study.reporting.geometry import shifts
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.shown import UNITS, place
from calibudget.study.reporting.table import Table
from calibudget.study.statistics import seeds_needed


class Layer(NamedTuple):
    """One layer of evidence."""

    name: str
    supports: str
    not_shown: str


def boundary_table(results: Results) -> Table:
    """Every layer of evidence with the strongest words that its numbers carry, and stronger ones that they don't."""
    layers = [*_claims(results), *_retention(results), *_others(results), *_moved(results), *_stable(results)]
    notes = [f"Stopped: {cell.name}: {reason}." for cell, reason in results.stopped.items()]
    if results.missing:
        notes.append(f"{len(results.missing)} cells are missing; what is said here is said without them.")
    return Table(
        name="boundary",
        title="What is shown and what isn't",
        columns=("evidence", "what it supports", "what it doesn't show"),
        rows=tuple(tuple(layer) for layer in layers),
        notes=tuple(notes),
    )


def _claims(results: Results) -> Iterator[Layer]:
    """The primary endpoints of each block."""
    by_block: dict[Block, list[Judged]] = {}
    for one in judge(results):
        by_block.setdefault(one.block, []).append(one)
    for block, judged in by_block.items():
        focus, seeds = results.protocol.focus, _seeds(block)
        shown = [_said(results, one) for one in judged]
        open_ones = [_left_open(results, one) for one in judged if not one.claim.supported]
        worse = [
            name
            for name, endpoint in results.protocol.endpoints.items()
            if (found := paired(results, block, focus, block.comparator, name)) is not None
            and found.mean * (1 if endpoint.direction == "higher" else -1) < 0
        ]
        rest = [f"That {focus} is better throughout: on average it is worse on {_listed(worse)}."] if worse else []
        if block.status == "exploratory":
            rest.append("Anything beyond these cells: this point was not declared confirmatory before it ran.")
        yield Layer(
            f"{focus} against {block.comparator} ({place(block)}; {block.status}, {seeds})",
            " ".join(shown),
            " ".join([*open_ones, *rest]) or "Other models, data, budgets and floors.",
        )


def _said(results: Results, one: Judged) -> str:
    """The strongest words for one primary endpoint."""
    amount = _amount(results, one)
    if one.claim.supported:
        return f"{one.endpoint} is better: {amount}, adjusted p {one.claim.adjusted_p:.3f}."
    if one.claim.consistent and one.claim.effects.seeds > 1:
        return f"{one.endpoint} is better in every seed ({amount} on average), as a description of these seeds."
    return f"{one.endpoint} moves by {amount} on average, not the same way in every seed or from one seed alone."


def _left_open(results: Results, one: Judged) -> str:
    """Why an endpoint's claim isn't supported, and what it would take."""
    found, analysis = one.claim.effects, results.protocol.analysis
    if one.claim.adjusted_p is None:
        return f"A difference on {one.endpoint} beyond these cells: no test is possible."
    needed = seeds_needed(found.mean, found.sd or 0.0, alpha=analysis.alpha, power=analysis.power)
    much = "no number of seeds" if needed is None else f"about {needed:,} seeds"
    p = f"adjusted p {one.claim.adjusted_p:.3f}"
    return f"A difference on {one.endpoint} beyond these seeds ({p}; {much} would show it)."


def _retention(results: Results) -> Iterator[Layer]:
    """Whether what had to be kept was kept."""
    guard = results.protocol.retention
    if guard is None:
        return
    endpoint = results.protocol.endpoints[guard.endpoint]
    unit = UNITS[endpoint.measure]
    for block in results.blocks():
        if {results.protocol.focus, block.comparator} - set(block.policies):
            continue
        found = paired(results, block, results.protocol.focus, block.comparator, guard.endpoint)
        if found is None:
            continue
        loss = -found.mean if endpoint.direction == "higher" else found.mean
        kept = loss <= guard.may_fall
        bound = f"{unit.scale * guard.may_fall:.{unit.digits}f} {unit.difference}"
        change = f"{guard.endpoint} changes by {unit.scale * found.mean:+.{unit.digits}f} {unit.difference} on average"
        yield Layer(
            f"Retention ({place(block)}; {block.status})",
            f"{change}, {'within' if kept else 'beyond'} the {bound} that it may get worse by.",
            f"That nothing is lost: the guard is on the mean over {_seeds(block)}."
            if kept
            else "That gains elsewhere count: the guard that was set before is broken.",
        )


def _others(results: Results) -> Iterator[Layer]:
    """The focus against policies other than the comparator: ablations, variants, baselines."""
    focus = results.protocol.focus
    for block in results.blocks():
        for policy in block.policies:
            if focus not in block.policies or policy in (focus, block.comparator) or len(block.seeds) < 2:
                continue
            better: list[str] = []
            worse: list[str] = []
            mixed: list[str] = []
            for name, endpoint in results.protocol.endpoints.items():
                found = paired(results, block, focus, policy, name)
                if found is None:
                    continue
                sign = 1 if endpoint.direction == "higher" else -1
                signs = {sign * one > 0 for one in found.by_seed.values()}
                (mixed if len(signs) > 1 else better if signs == {True} else worse).append(name)
            if better or worse or mixed:
                parts = [("better", better), ("no better", worse), ("varying", mixed)]
                said = "; ".join(f"{word} on {_listed(names)}" for word, names in parts if names)
                yield Layer(
                    f"{focus} against {policy} ({place(block)}; descriptive, {_seeds(block)})",
                    f"In every seed: {said}." if better or worse else f"The seeds disagree: {said}.",
                    "The effect of one term or choice alone, or a tested difference.",
                )


def _moved(results: Results) -> Iterator[Layer]:
    """How much of the budget the comparison is about."""
    for block in results.blocks():
        if {results.protocol.focus, block.comparator} - set(block.policies):
            continue
        shares = [100 * one.share for one in shifts(results, block).values()]
        least, most = min(shares), max(shares)
        span = f"{least:.2f}%" if round(least, 2) == round(most, 2) else f"{least:.2f} to {most:.2f}%"
        yield Layer(
            f"Quota geometry ({place(block)})",
            f"The two policies differ in {span} of the budget.",
            "That a task gains with its own source's quota.",
        )


def _stable(results: Results) -> Iterator[Layer]:
    """How far the two policies' quotas depend on the calibration split."""
    for block in results.blocks():
        if results.protocol.points[block.point].transfer is not None or len(block.seeds) < 2:
            continue
        if {results.protocol.focus, block.comparator} - set(block.policies):
            continue
        spread = {
            policy: stability(list(results.quotas(block, policy).values())).mean_quota_sd
            for policy in (results.protocol.focus, block.comparator)
        }
        said = ", ".join(f"{sd:.2f} for {policy}" for policy, sd in spread.items())
        yield Layer(
            f"Stability ({place(block)}, {len(block.seeds)} splits)",
            f"Mean standard deviation of a quota between calibration splits: {said}.",
            "Stability under other partitions into sources, or other models.",
        )


def _amount(results: Results, one: Judged) -> str:
    unit = UNITS[results.protocol.endpoints[one.endpoint].measure]
    return f"{unit.scale * one.claim.effects.mean:+.{unit.digits}f} {unit.difference}"


def _seeds(block: Block) -> str:
    return f"{len(block.seeds)} seed{'s' if len(block.seeds) > 1 else ''}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

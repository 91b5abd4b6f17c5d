"""What the numbers support and what they don't, in plain words (paper, appendix, Table "Claim boundary")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from calibudget.allocation.stability import stability
from calibudget.messages import counted
from calibudget.study.protocol import Measure
from calibudget.study.reporting.certainty import Judged, judge, task_interval
from calibudget.study.reporting.claims import seeds_needed
from calibudget.study.reporting.endpoint_display import (
    UNITS,
    amount,
    p_said,
    sign_shown,
)
from calibudget.study.reporting.intervals import Interval
from calibudget.study.reporting.quota_movement import shifts
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.table import Table, decimal


class Layer(NamedTuple):
    """One layer of evidence."""

    name: str
    supports: str
    not_shown: str


def boundary_table(results: Results) -> Table:
    """Every layer of evidence with the strongest words that its numbers carry, and stronger ones that they don't."""
    layers = [
        *_claims(results),
        *_retention(results),
        *_beside_the_claims(results),
        *_others(results),
        *_moved(results),
        *_stable(results),
    ]
    notes = [f"Stopped: {cell.name}: {reason}." for cell, reason in results.stopped.items()]
    notes.extend(_shared_prompts(results))
    calibrated = {t for one in results.results.values() for t, own in one.tasks.items() if own.calibration}
    notes.extend(f"Calibrated on: items of {task} are calibration records of a cell." for task in sorted(calibrated))
    if results.missing:
        notes.append(f"{len(results.missing)} cells are missing; what is said here is said without them.")
    return Table(
        name="boundary",
        title="What is shown and what isn't",
        columns=("evidence", "what it supports", "what it doesn't show"),
        rows=tuple(tuple(layer) for layer in layers),
        notes=tuple(notes),
    )


def _shared_prompts(results: Results) -> Iterator[str]:
    """Of each task some of whose prompts were trained on, in how many cells, and of how many items at most."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in results.results.values():
        for task, metrics in one.tasks.items():
            if metrics.shared:
                found.setdefault(task, []).append((metrics.shared, metrics.items))
    for task, cells in sorted(found.items()):
        most, items = max(cells)
        yield (
            f"Trained on: the training sets of {counted(len(cells), 'cell')} hold prompts of {task}, up to {most:,} of "
            f"its {items:,} items; scores there may be memory."
        )


def _claims(results: Results) -> Iterator[Layer]:
    """The primary endpoints of each block."""
    by_block: dict[Block, list[Judged]] = {}
    for one in judge(results):
        by_block.setdefault(one.block, []).append(one)
    for block, judged in by_block.items():
        yield _final(block, judged) if block.final else _interim(block, judged)


def _final(block: Block, judged: list[Judged]) -> Layer:
    """What a block's primary endpoints came to."""
    focus = block.focus
    open_ones = [said for one in judged if (said := _left_open(one))]
    worse = [
        name
        for name, endpoint in block.protocol.endpoints.items()
        if (found := block.paired(name)) is not None and sign_shown(found.mean, endpoint.measure) * endpoint.sign < 0
    ]
    rest = [f"That {focus} is better throughout: on average it is worse on {_listed(worse)}."] if worse else []
    transfer = block.definition.transfer
    if transfer is not None:
        rest.append(f"What quotas of its own would do: this point tests how quotas of seed {transfer.seed} transfer.")
    if block.status == "exploratory":
        rest.append("Anything beyond these cells: this point was not declared confirmatory before it ran.")
    return Layer(
        f"{focus} against {block.comparator} ({block.place}; {block.status}, {block.seeds_counted})",
        " ".join(_said(one) for one in judged),
        " ".join([*open_ones, *rest]) or "Other models, data, budgets and floors.",
    )


def _interim(block: Block, judged: list[Judged]) -> Layer:
    """What is there of a block whose claims can't be judged yet: numbers, and no words for them."""
    so_far = [f"{one.endpoint} {amount(one.effects.mean, one.measure)}" for one in judged if one.effects is not None]
    means = f" Means so far: {', '.join(so_far)}." if so_far else ""
    return Layer(
        f"{block.focus} against {block.comparator} ({block.place}; {block.standing})",
        f"Nothing yet: claims are judged once all {len(block.planned)} seeds are there.{means}",
        f"Any difference on {_listed([one.endpoint for one in judged])}.",
    )


def _said(one: Judged) -> str:
    """The strongest words for one primary endpoint of a final block."""
    if one.claim is None:
        return f"{one.endpoint} shows nothing: it is undefined in {one.where_undefined}."
    claim, measure = one.claim, one.measure
    moved = amount(claim.effects.mean, measure)
    if claim.adjusted_p is not None and (claim.supported or claim.opposed):
        word = "better" if claim.supported else "shown to be worse"
        return f"{one.endpoint} is {word}: {moved}, adjusted {p_said(claim.adjusted_p)}."
    if claim.effects.seeds == 1:
        return f"{one.endpoint} moves by {moved} in one seed alone."
    if sign_shown(claim.effects.mean, measure) == 0:
        return f"{one.endpoint} doesn't move on average, to the digits shown ({moved})."
    if claim.consistent or claim.reversed:
        word = "better" if claim.consistent else "worse"
        return f"{one.endpoint} is {word} in every seed ({moved} on average), as a description of these seeds."
    return f"{one.endpoint} moves by {moved} on average, not the same way in every seed."


def _left_open(one: Judged) -> str | None:
    """Why it isn't shown that an endpoint moves, and what that would take; None where it is shown."""
    if one.claim is None or one.claim.adjusted_p is None:
        return f"A difference on {one.endpoint} beyond these cells: no test is possible."
    if one.claim.supported or one.claim.opposed:
        return None
    found, analysis = one.claim.effects, one.block.protocol.analysis
    needed = seeds_needed(found.mean, found.sd or 0.0, alpha=analysis.alpha, power=analysis.power)
    much = "no number of seeds" if needed is None else f"about {needed:,} seeds"
    p = f"adjusted {p_said(one.claim.adjusted_p)}"
    return f"A difference on {one.endpoint} beyond these seeds ({p}; {much} would show it)."


def _retention(results: Results) -> Iterator[Layer]:
    """Whether what had to be kept was kept."""
    guard = results.protocol.retention
    if guard is None:
        return
    endpoint = results.protocol.endpoints[guard.endpoint]
    unit = UNITS[endpoint.measure]
    for block in results.blocks():
        if not block.is_claimed:
            continue
        found, name = block.paired(guard.endpoint), f"Retention ({block.place}; {block.standing})"
        if found is None:
            where = block.undefined(guard.endpoint)[0]
            lacks = "That what had to be kept was kept."
            yield Layer(name, f"Nothing: {guard.endpoint} is undefined in {where}.", lacks)
            continue
        loss = -endpoint.sign * found.mean
        kept = loss <= guard.may_fall or math.isclose(loss, guard.may_fall, rel_tol=1e-9)
        bound = f"{decimal(unit.scale * guard.may_fall, unit.digits)} {unit.difference}"
        change = f"{guard.endpoint} changes by {amount(found.mean, endpoint.measure)} on average"
        if not block.final:
            waits = "That it is kept or lost: the guard is judged once all seeds are there."
            yield Layer(name, f"{change} so far; it may get worse by {bound}.", waits)
            continue
        yield Layer(
            name,
            f"{change}, {'within' if kept else 'beyond'} the {bound} that it may get worse by.",
            f"That nothing is lost: the guard is on the mean over {block.seeds_counted}."
            if kept
            else "That gains elsewhere count: the guard that was set before is broken.",
        )


def _beside_the_claims(results: Results) -> Iterator[Layer]:
    """Which intervals over tasks hold zero, and what became of endpoints whose tasks no claim is about."""
    protocol = results.protocol
    claimed = {task for name in protocol.primary for task in protocol.weights(name)}
    for block in results.blocks():
        if not block.is_claimed or not block.final or len(block.seeds) < 2:
            continue
        known = {
            name: (found, interval)
            for name in protocol.endpoints
            if (found := block.paired(name)) is not None
            and (interval := task_interval(block, name, seeds=True)) is not None
        }
        said = {
            name: _with_interval(name, protocol.endpoints[name].measure, found.mean, one)
            for name, (found, one) in known.items()
        }
        crossing = [name for name, (_, interval) in known.items() if interval.low <= 0 <= interval.high]
        if known:
            clear = [said[name] for name in known if name not in crossing]
            yield Layer(
                f"Intervals over tasks and seeds ({block.place}; descriptive)",
                f"Without zero: {'; '.join(clear)}." if clear else "Nothing: every interval crosses zero.",
                f"A difference on {_listed(crossing)}: their intervals cross zero."
                if crossing
                else "Differences on other tasks or in other seeds.",
            )
        for name in known:
            if not claimed & protocol.weights(name).keys() and not (
                protocol.retention and protocol.retention.endpoint == name
            ):
                yield Layer(
                    f"{name}, not primary ({block.place}; descriptive)",
                    f"{said[name]}.",
                    f"A reliable gain on {', '.join(protocol.weights(name))}: no claim is about them.",
                )


def _with_interval(name: str, measure: Measure, mean: float, interval: Interval) -> str:
    low, high = (amount(end, measure).partition(" ")[0] for end in (interval.low, interval.high))
    return f"{name} moves by {amount(mean, measure)} [{low}, {high}]"


def _others(results: Results) -> Iterator[Layer]:
    """The focus against policies other than the comparator: ablations, variants, baselines."""
    focus = results.protocol.focus
    for block in results.blocks():
        for policy in block.policies:
            if focus not in block.policies or policy in (focus, block.comparator) or len(block.seeds) < 2:
                continue
            by_word: dict[str, list[str]] = {"better": [], "no better": [], "varying": []}
            for name, endpoint in results.protocol.endpoints.items():
                found = block.paired(name, policy)
                signs = set() if found is None else {endpoint.sign * one > 0 for one in found.by_seed.values()}
                if signs:
                    by_word["varying" if len(signs) > 1 else "better" if signs == {True} else "no better"].append(name)
            told = {word: names for word, names in by_word.items() if names}
            if told:
                said = "; ".join(f"{word} on {_listed(names)}" for word, names in told.items())
                yield Layer(
                    f"{focus} against {policy} ({block.place}; descriptive, {block.seeds_counted})",
                    f"The seeds disagree: {said}." if [*told] == ["varying"] else f"In every seed: {said}.",
                    "The effect of one term or choice alone, or a tested difference.",
                )


def _moved(results: Results) -> Iterator[Layer]:
    """How much of the budget the comparison is about."""
    for block in results.blocks():
        if not block.is_compared:
            continue
        shares = [100 * one.share for one in shifts(block).values()]
        least, most = min(shares), max(shares)
        span = f"{least:.2f}%" if round(least, 2) == round(most, 2) else f"{least:.2f} to {most:.2f}%"
        yield Layer(
            f"Quota geometry ({block.place})",
            f"The two policies differ in {span} of the budget.",
            "That a task gains with its own source's quota.",
        )


def _stable(results: Results) -> Iterator[Layer]:
    """How far the two policies' quotas depend on the calibration split."""
    for block in results.blocks():
        if block.definition.transfer is not None or len(block.seeds) < 2 or not block.is_compared:
            continue
        spread = {
            policy: stability(list(block.quotas(policy).values())).mean_quota_sd
            for policy in (block.focus, block.comparator)
        }
        said = ", ".join(f"{sd:.2f} for {policy}" for policy, sd in spread.items())
        yield Layer(
            f"Stability ({block.place}, {len(block.seeds)} splits)",
            f"Mean standard deviation of a quota between calibration splits: {said}.",
            "Stability under other partitions into sources, or other models.",
        )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""How sure the differences are: intervals, joint claims, and how many seeds a claim needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calibudget.study.items import Items
from calibudget.study.protocol import Status
from calibudget.study.reporting.comparisons import paired
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.shown import UNITS, difference_shown, place
from calibudget.study.reporting.table import Quantity, Shown, Table
from calibudget.study.statistics import (
    Claim,
    Interval,
    TaskItems,
    bootstrap_examples,
    bootstrap_tasks,
    detectable_effect,
    judge_claims,
    seeds_needed,
    sign_flip_p,
    strata_of,
    t_test_p,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A claim that the focus is better than a block's comparator on a primary endpoint."""

    block: Block
    endpoint: str
    status: Status
    claim: Claim


def task_interval(results: Results, block: Block, endpoint: str, *, seeds: bool) -> Interval | None:
    """Interval when the endpoint's tasks (and seeds) are drawn again; None where it is of one task or undefined."""
    protocol = results.protocol
    panel = protocol.endpoints[endpoint].panel
    if panel not in protocol.all_panels:
        return None
    first, second = (results.task_scores(block, one, endpoint) for one in (protocol.focus, block.comparator))
    if first is None or second is None:
        return None
    differences = {
        task: [first[task, seed] - second[task, seed] for seed in block.seeds] for task in protocol.weights(endpoint)
    }
    return bootstrap_tasks(
        differences,
        strata_of(panel, protocol.all_panels),
        over="tasks and seeds" if seeds else "tasks",
        name=f"tasks/{block.point}/{block.backbone}/{endpoint}",
        seed=protocol.analysis.seed,
        resamples=protocol.analysis.resamples,
        level=protocol.analysis.level,
    )


def example_interval(results: Results, block: Block, endpoint: str) -> Interval | None:
    """Interval when seeds and the tasks' items are drawn again; None where items are missing or undefined."""
    protocol = results.protocol
    measure, weights = protocol.endpoints[endpoint].measure, protocol.weights(endpoint)
    sides = []
    for policy in (protocol.focus, block.comparator):
        by_seed = [results.items(block, policy, seed) for seed in block.seeds]
        known = [one for one in by_seed if one is not None]
        if len(known) < len(by_seed):
            return None
        sides.append(known)
    tasks = {task: _differences((task, measure), *sides) for task in weights}
    whole = {task: one for task, one in tasks.items() if one is not None}
    if len(whole) < len(tasks):
        return None
    return bootstrap_examples(
        whole,
        weights,
        name=f"examples/{block.point}/{block.backbone}/{endpoint}",
        seed=protocol.analysis.seed,
        resamples=protocol.analysis.resamples,
        level=protocol.analysis.level,
    )


Cells = list[Mapping[tuple[str, str], Items]]


def _differences(key: tuple[str, str], policy: Cells, comparator: Cells) -> TaskItems | None:
    """Paired differences of one task's items; None where a cell lacks them, or two paired cells had other items."""
    differences, ids = [], []
    for first, second in zip(policy, comparator, strict=True):
        one, two = first.get(key), second.get(key)
        if one is None or two is None or one.ids != two.ids or not one.ids:
            return None
        difference = one.values - two.values
        if np.isnan(difference).any():
            return None
        differences.append(difference)
        ids.append(one.ids)
    return TaskItems(differences=differences, shared=len(set(ids)) == 1)


def intervals_table(results: Results, block: Block) -> Table:
    """The mean difference of every endpoint with its intervals and tests."""
    focus, analysis = results.protocol.focus, results.protocol.analysis
    rows: list[tuple[Shown, ...]] = []
    for name, one in results.protocol.endpoints.items():
        found = paired(results, block, focus, block.comparator, name)
        mean = None if found is None else found.mean
        intervals = (
            task_interval(results, block, name, seeds=False),
            task_interval(results, block, name, seeds=True),
            example_interval(results, block, name),
        )
        shown = (difference_shown(mean if each else None, one.measure, each) for each in intervals)
        p_values = (None, None) if found is None else (t_test_p(found), sign_flip_p(found))
        rows.append(
            (
                f"{name} ({UNITS[one.measure].difference})",
                *shown,
                *(Quantity(value=p, digits=3) for p in p_values),
            )
        )
    return Table(
        name=f"intervals-{block.point}-{block.backbone}",
        title=f"Intervals, {focus} minus {block.comparator}: {place(block)} ({block.status})",
        columns=(
            "endpoint",
            "tasks drawn",
            "tasks and seeds drawn",
            "seeds and items drawn",
            "t test p",
            "sign flips p",
        ),
        rows=tuple(rows),
        notes=(
            f"Percentile intervals at {100 * analysis.level:g}% from {analysis.resamples:,} resamples. With few seeds, "
            "or two tasks, an interval is coarse and too narrow. p values are two-sided and not adjusted.",
        ),
    )


def judge(results: Results) -> tuple[Judged, ...]:
    """All primary claims: those of confirmatory points judged together, those of exploratory ones together."""
    judged: list[Judged] = []
    for status in ("confirmatory", "exploratory"):
        blocks = [block for block in results.blocks() if block.status == status]
        family = {
            (block, name): (found, results.protocol.endpoints[name].direction)
            for block in blocks
            for name in results.protocol.primary
            if {results.protocol.focus, block.comparator} <= set(block.policies)
            and (found := paired(results, block, results.protocol.focus, block.comparator, name)) is not None
        }
        named = {f"{block.point}/{block.backbone}/{name}": one for (block, name), one in family.items()}
        claims = judge_claims(named, alpha=results.protocol.analysis.alpha)
        judged += [
            Judged(block=block, endpoint=name, status=status, claim=claim)
            for (block, name), claim in zip(family, claims.values(), strict=True)
        ]
    return tuple(judged)


def claims_table(results: Results) -> Table:
    """Every primary claim with its adjusted p, what could be detected, and the seeds that it would need."""
    analysis = results.protocol.analysis
    rows: list[tuple[Shown, ...]] = []
    for one in judge(results):
        measure = results.protocol.endpoints[one.endpoint].measure
        found, unit = one.claim.effects, UNITS[measure]
        least = needed = None
        if found.sd is not None:
            least = detectable_effect(found.sd, found.seeds, alpha=analysis.alpha, power=analysis.power)
            needed = seeds_needed(found.mean, found.sd, alpha=analysis.alpha, power=analysis.power)
        rows.append(
            (
                one.block.point,
                one.block.backbone,
                f"{one.endpoint} ({unit.difference})",
                one.status,
                "supported" if one.claim.supported else "not supported",
                difference_shown(found.mean, measure),
                Quantity(value=one.claim.p, digits=3),
                Quantity(value=one.claim.adjusted_p, digits=3),
                Quantity(value=None if least is None else unit.scale * least, digits=unit.digits),
                found.seeds,
                "n/a" if needed is None else f"{needed:,}",
            )
        )
    return Table(
        name="claims",
        title=f"Claims that {results.protocol.focus} is better than its comparator",
        columns=(
            "point", "backbone", "endpoint", "status", "claim", "difference", "p", "adjusted p", "detectable", "seeds",
            "seeds needed",
        ),
        rows=tuple(rows),
        notes=(
            "p is of the paired t test over seeds, two-sided; adjusted after Holm over the claims of one status, level "
            f"{analysis.alpha:g}. Detectable is the smallest true difference that so many seeds find with power "
            f"{analysis.power:g}, seeds needed the number that would find the difference seen; both go by the sd seen, "
            "which few seeds know badly.",
        ),
    )  # fmt: skip

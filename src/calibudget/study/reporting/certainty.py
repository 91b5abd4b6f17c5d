"""How sure the differences are: intervals, joint claims, and how many seeds a claim needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from calibudget.study.cell_records import Items
from calibudget.study.protocol import Measure
from calibudget.study.reporting.claims import (
    Claim,
    Effects,
    detectable_effect,
    judge_claims,
    seeds_needed,
    sign_flip_p,
    t_test_p,
)
from calibudget.study.reporting.endpoint_display import UNITS, difference_shown, head, p_shown
from calibudget.study.reporting.intervals import (
    Draws,
    Interval,
    TaskItems,
    bootstrap_examples,
    bootstrap_tasks,
    strata_of,
)
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.table import UNDEFINED, Quantity, Shown, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A claim that the focus is better than a block's comparator on a primary endpoint.

    Attributes:
        effects: the paired differences that are there; None before the first seed, and where the endpoint is undefined.
        undefined: names of the cells in which the endpoint is undefined.
        claim: what seeds say; None where the block isn't final or the endpoint is undefined.
    """

    block: Block
    endpoint: str
    effects: Effects | None
    undefined: tuple[str, ...]
    claim: Claim | None

    @property
    def measure(self) -> Measure:
        """The endpoint's."""
        return self.block.protocol.endpoints[self.endpoint].measure

    @property
    def verdict(self) -> str:
        """What became of the claim, in a few words."""
        if not self.block.final:
            return f"interim: {self.block.seeds_counted}"
        if self.claim is None:
            return f"not shown: undefined in {self.where_undefined}"
        if self.claim.opposed:
            return "shown to be worse"
        return "supported" if self.claim.supported else "not supported"

    @property
    def where_undefined(self) -> str:
        """The first cell in which the endpoint is undefined, and how many more there are."""
        more = len(self.undefined) - 1
        return f"{self.undefined[0]}{f' and {more} more' if more else ''}"


def task_interval(block: Block, endpoint: str, *, seeds: bool) -> Interval | None:
    """Interval when the endpoint's tasks (and seeds) are drawn again; None where it is of one task or undefined."""
    protocol = block.protocol
    panel = protocol.endpoints[endpoint].panel
    if panel not in protocol.all_panels:
        return None
    first, second = (block.task_scores(one, endpoint) for one in (protocol.focus, block.comparator))
    if first is None or second is None:
        return None
    differences = {
        task: [first[task, seed] - second[task, seed] for seed in block.seeds] for task in protocol.weights(endpoint)
    }
    return bootstrap_tasks(
        differences,
        strata_of(panel, protocol.all_panels),
        over="tasks and seeds" if seeds else "tasks",
        draws=_draws(block, f"tasks/{block.point}/{block.backbone}/{endpoint}"),
    )


def example_interval(block: Block, endpoint: str) -> Interval | None:
    """Interval when seeds and the tasks' items are drawn again; None where items are missing or undefined."""
    protocol = block.protocol
    measure, weights = protocol.endpoints[endpoint].measure, protocol.weights(endpoint)
    sides = []
    for policy in (protocol.focus, block.comparator):
        by_seed = [block.items(policy, seed) for seed in block.seeds]
        known = [one for one in by_seed if one is not None]
        if len(known) < len(by_seed):
            return None
        sides.append(known)
    tasks = {task: _differences((task, measure), *sides) for task in weights}
    whole = {task: one for task, one in tasks.items() if one is not None}
    if len(whole) < len(tasks):
        return None
    draws = _draws(block, f"examples/{block.point}/{block.backbone}/{endpoint}")
    return bootstrap_examples(whole, weights, draws)


def _draws(block: Block, name: str) -> Draws:
    analysis = block.protocol.analysis
    return Draws(name, analysis.seed, analysis.resamples, analysis.level)


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


def intervals_table(block: Block) -> Table:
    """The mean difference of every endpoint with its intervals and tests."""
    focus, analysis = block.focus, block.protocol.analysis
    rows: list[tuple[Shown, ...]] = []
    for name, one in block.protocol.endpoints.items():
        found = block.paired(name)
        mean = None if found is None else found.mean
        intervals = (
            task_interval(block, name, seeds=False),
            task_interval(block, name, seeds=True),
            example_interval(block, name),
        )
        shown = (difference_shown(mean if each else None, one.measure, each) for each in intervals)
        p_values = (t_test_p(found), sign_flip_p(found)) if found is not None and block.final else (None, None)
        rows.append((head(name, one.measure, difference=True), *shown, *map(p_shown, p_values)))
    return Table(
        name=f"intervals-{block.key}",
        title=f"Intervals, {focus} minus {block.comparator}: {block.place} ({block.standing})",
        columns=(
            "endpoint", "tasks drawn", "tasks and seeds drawn", "seeds and items drawn", "t test p", "sign flips p",
        ),
        rows=tuple(rows),
        notes=(
            f"Percentile intervals at {100 * analysis.level:g}% from {analysis.resamples:,} resamples. With few seeds, "
            "or two tasks, an interval is coarse and too narrow. p values are two-sided and not adjusted.",
            *([] if block.final else ["Interim: nothing is tested or claimed before all seeds are there."]),
        ),
    )  # fmt: skip


def judge(results: Results) -> tuple[Judged, ...]:
    """All primary claims: those of confirmatory points judged together, those of exploratory ones together.

    A claim is judged once its block is final. Until then it counts in the adjustment as one of p = 1, and so does one
    whose endpoint is undefined; a confirmatory claim counts before any of its cells is finished.
    """
    found: list[Judged] = []
    for status in ("confirmatory", "exploratory"):
        family = [
            Judged(
                block=block,
                endpoint=name,
                effects=block.paired(name) if block.seeds else None,
                undefined=block.undefined(name),
                claim=None,
            )
            for block in results.planned_blocks()
            if block.status == status and (block.seeds or status == "confirmatory") and block.is_claimed
            for name in results.protocol.primary
        ]
        known = {
            str(place): (one.effects, results.protocol.endpoints[one.endpoint].direction)
            for place, one in enumerate(family)
            if one.block.final and one.effects is not None
        }
        alpha = results.protocol.analysis.alpha
        claims = judge_claims(known, alpha=alpha, unjudged=len(family) - len(known))
        found += [replace(one, claim=claims.get(str(place))) for place, one in enumerate(family)]
    return tuple(found)


def claims_table(results: Results) -> Table:
    """Every primary claim with its adjusted p, what could be detected, and the seeds that it would need."""
    analysis = results.protocol.analysis
    judged = judge(results)
    waiting = (
        "A claim is judged once all its seeds are there, or the continuation criterion has ended its point; interim "
        "claims count in the adjustment as p = 1, so that the adjusted p of the others can only fall."
    )
    return Table(
        name="claims",
        title=f"Claims that {results.protocol.focus} is better than its comparator",
        columns=(
            "point", "backbone", "endpoint", "status", "claim", "difference", "p", "adjusted p", "detectable", "seeds",
            "seeds needed",
        ),
        rows=tuple(_claim_row(one) for one in judged),
        notes=(
            "p is of the paired t test over seeds, two-sided; adjusted after Holm over the claims of one status, level "
            f"{analysis.alpha:g}. Detectable is the smallest true difference that so many seeds find with power "
            f"{analysis.power:g}, seeds needed the number that would find the difference seen; both go by the sd seen, "
            "which few seeds know badly.",
            *([waiting] if any(not one.block.final for one in judged) else []),
        ),
    )  # fmt: skip


def _claim_row(one: Judged) -> tuple[Shown, ...]:
    """A claim's row; of one that isn't judged no more than the difference so far."""
    analysis, measure = one.block.protocol.analysis, one.measure
    unit = UNITS[measure]
    least = needed = None
    found = None if one.claim is None else one.claim.effects
    if found is not None and found.sd is not None:
        least = detectable_effect(found.sd, found.seeds, alpha=analysis.alpha, power=analysis.power)
        needed = seeds_needed(found.mean, found.sd, alpha=analysis.alpha, power=analysis.power)
    return (
        one.block.point,
        one.block.backbone,
        head(one.endpoint, measure, difference=True),
        one.block.status,
        one.verdict,
        difference_shown(None if one.effects is None else one.effects.mean, measure),
        p_shown(None if one.claim is None else one.claim.p),
        p_shown(None if one.claim is None else one.claim.adjusted_p),
        Quantity(value=None if least is None else unit.scale * least, digits=unit.digits),
        len(one.block.seeds),
        UNDEFINED if needed is None else f"{needed:,}",
    )

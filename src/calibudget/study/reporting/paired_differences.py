"""Scores and paired differences (paper, Tables 1, 2 and 4, and its ablations)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean

from calibudget.allocation.policies import POLICIES
from calibudget.messages import counted
from calibudget.study.protocol import Endpoint, Measure, Protocol
from calibudget.study.reporting.claims import Effects, effects, wins
from calibudget.study.reporting.endpoint_display import (
    difference_shown,
    effects_shown,
    head,
    mean_shown,
)
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.table import Quantity, Shown, Table

_SD = "± is the standard deviation over seeds (ddof 1), not of the mean."


def heads(protocol: Protocol, *, difference: bool = False) -> tuple[str, ...]:
    """The endpoints as columns."""
    return tuple(head(name, one.measure, difference=difference) for name, one in protocol.endpoints.items())


def scores_table(block: Block) -> Table:
    """Mean of every endpoint by policy, with what its quotas go by (paper, Table 1)."""
    order = {name: _standings(block, name, one) for name, one in block.protocol.endpoints.items()}

    def row(policy: str) -> Iterator[Quantity]:
        for name, one in block.protocol.endpoints.items():
            first, second = order[name]
            yield mean_shown(
                block.series(policy, name),
                one.measure,
                best=policy in first,
                runner_up=policy in second and policy == block.comparator,
            )

    spread = f" {_SD}" if len(block.seeds) > 1 else ""
    return Table(
        name=f"scores-{block.key}",
        title=f"Scores by policy: {block.place} ({block.standing})",
        columns=("policy", "allocation signal", *heads(block.protocol)),
        rows=tuple((policy, _signal(block.protocol, policy), *row(policy)) for policy in block.policies),
        notes=(
            f"Means over seeds. {block.seeds_note}{spread} Set off: the best mean (bold), and the comparator where it "
            "is the runner-up (underlined).",
        ),
    )


def _signal(protocol: Protocol, policy: str) -> str:
    """What a policy's quotas go by, with the fields that change it."""
    fields = dict(protocol.policies[policy].recipe)
    rule = POLICIES.get(fields.pop("policy", policy))
    own = ", ".join(f"{name}: {value}" for name, value in {**fields, **protocol.policies[policy].training}.items())
    return f"{rule.summary if rule else policy}{f' ({own})' if own else ''}"


def _standings(block: Block, name: str, endpoint: Endpoint) -> tuple[frozenset[str], frozenset[str]]:
    """The policies with the best mean of an endpoint, and those with the second best."""
    means = {p: fmean(found.values()) for p in block.policies if (found := block.series(p, name)) is not None}
    ordered = sorted(set(means.values()), reverse=endpoint.direction == "higher")
    if len(means) < 2:
        return frozenset(), frozenset()
    ranks = [frozenset(policy for policy, mean in means.items() if mean == one) for one in ordered[:2]]
    return ranks[0], ranks[1] if len(ranks) > 1 else frozenset()


def paired_table(block: Block) -> Table:
    """Differences between focus and comparator by seed, with mean and standard deviation."""
    found = [(block.paired(name), one.measure) for name, one in block.protocol.endpoints.items()]

    def row(value: Callable[[Effects], float | None]) -> list[Quantity]:
        return [difference_shown(None if one is None else value(one), measure) for one, measure in found]

    def at(seed: int) -> tuple[Shown, ...]:
        return (str(seed), *row(lambda one: one.by_seed[seed]))

    sds = (replace(one, signed=False) for one in row(lambda one: one.sd))
    return Table(
        name=f"paired-{block.key}",
        title=f"Paired differences, {block.focus} minus {block.comparator}: {block.place} ({block.standing})",
        columns=("seed", *heads(block.protocol, difference=True)),
        rows=(*map(at, block.seeds), ("mean", *row(lambda one: one.mean)), ("sd", *sds)),
        notes=("Differences are taken before rounding; sd is over seeds (ddof 1).",),
    )


def contrasts_table(block: Block) -> Table:
    """The focus against every other policy: mean difference, and in how many seeds it is the better one."""
    focus = block.focus
    endpoints = block.protocol.endpoints

    def row(policy: str) -> Iterator[Shown]:
        for name, one in endpoints.items():
            found = block.paired(name, policy)
            yield effects_shown(found, one.measure)
            yield "" if found is None else _better(found, one)

    columns = [column for name in heads(block.protocol, difference=True) for column in (name, "better in")]
    return Table(
        name=f"contrasts-{block.key}",
        title=f"{focus} minus every other policy: {block.place} ({block.standing})",
        columns=("other policy", *columns),
        rows=tuple((policy, *row(policy)) for policy in block.policies if policy != focus),
        notes=(
            f"Ablations and variants are read here. {block.seeds_note} Terms of the utility act on each other, so a "
            "difference isn't the effect of one term alone.",
        ),
    )


def _better(found: Effects, endpoint: Endpoint) -> str:
    return f"{sum(endpoint.sign * one > 0 for one in found.by_seed.values())}/{found.seeds}"


def tasks_table(block: Block) -> Table:
    """Differences by task, mean over seeds, and how often the focus wins, by task and by endpoint (paper 3.3)."""
    focus, comparator = block.focus, block.comparator
    rows: dict[tuple[str, Measure], tuple[Shown, ...]] = {}
    notes = []
    for name, endpoint in block.protocol.endpoints.items():
        first, second = (block.task_scores(one, name) for one in (focus, comparator))
        if first is None or second is None:
            notes.append(f"{name} is undefined for a task, so its wins aren't counted.")
            continue
        for task in block.protocol.weights(name):
            own = effects(*({seed: side[task, seed] for seed in block.seeds} for side in (first, second)))
            shown = (task, endpoint.measure, effects_shown(own, endpoint.measure), _better(own, endpoint))
            rows.setdefault((task, endpoint.measure), shown)
        count = wins(first, second, endpoint.direction)
        notes.append(
            f"{name}: {focus} is better in {count.won} of {count.total} comparisons over tasks and seeds"
            f"{f', equal in {count.tied}' if count.tied else ''}."
        )
    return Table(
        name=f"tasks-{block.key}",
        title=f"Differences by task, {focus} minus {comparator}: {block.place} ({block.standing})",
        columns=("task", "measure", "difference", "better in"),
        rows=tuple(rows.values()),
        notes=tuple(notes),
    )


def points_table(results: Results) -> Table:
    """Focus and comparator at every point: floors, backbones, adaptive and transferred quotas side by side."""
    protocol = results.protocol
    measures = {name: one.measure for name, one in protocol.endpoints.items()}
    rows: list[tuple[Shown, ...]] = []
    notes = [_SD]
    for block in results.blocks():
        point = block.definition
        if not point.train:
            continue
        what = f"{point.floor:,} of {point.budget:,}, {'adaptive' if point.transfer is None else 'transferred'}"
        start = (block.point, block.backbone, what, block.standing)
        for policy in dict.fromkeys((block.comparator, protocol.focus)):
            if policy in block.policies:
                values = (mean_shown(block.series(policy, name), measures[name]) for name in measures)
                rows.append((*start, f"{policy} ({counted(len(block.seeds), 'seed')})", *values))
    for reason in dict.fromkeys(f"{cell.point}, {cell.backbone}: {why}." for cell, why in results.stopped.items()):
        notes.append(reason)
    return Table(
        name="points",
        title="Focus and comparator at every point",
        columns=("point", "backbone", "floor and quotas", "status", "policy", *heads(protocol)),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def exploratory(block: Block) -> Iterator[tuple[Block, str]]:
    """Policies that only exploratory points train at a block's budget, floor and backbone, each once."""
    known = set(block.policies)
    for other in _beside(block):
        if other.definition.transfer is not None:
            continue
        for policy in other.policies:
            if policy not in known:
                known.add(policy)
                yield other, policy


def variants_table(block: Block) -> Table | None:
    """Variants of the focus and checks on fixed indices, each under the frozen references of the same seeds.

    Returns:
        None where no exploratory point tries a variant of the focus.
    """
    variants = [(other, policy) for other, policy in exploratory(block) if _is_variant(block, policy)]
    if not variants:
        return None
    rows: list[tuple[Shown, ...]] = []
    for other in dict.fromkeys(other for other, _ in variants):
        rows += [
            _row(other, one, "frozen reference") for one in (block.focus, other.comparator) if one in other.policies
        ]
        rows += [_row(other, one, _kind(other, one)) for here, one in variants if here == other]
    for other in _beside(block):
        transfer = other.definition.transfer
        if transfer is not None and transfer.picks == "fixed":
            rows += [_row(other, one, f"fixed indices of seed {transfer.seed}") for one in other.policies]
    return Table(
        name=f"variants-{block.key}",
        title=f"Exploratory variants of {block.focus}, and fixed indices: {block.point}, {block.backbone}",
        columns=("diagnostic", "policy", "seeds", *heads(block.protocol)),
        rows=tuple(rows),
        notes=(f"None revises {block.focus}: only rows of the same seeds can be compared.",),
    )


def _beside(block: Block) -> Iterator[Block]:
    """Other exploratory blocks that train at a block's budget, floor and backbone."""
    point = block.definition
    for other in block.results.blocks():
        at = other.definition
        if other.point == block.point or other.status != "exploratory" or other.backbone != block.backbone:
            continue
        if at.train and (at.budget, at.floor, at.unit) == (point.budget, point.floor, point.unit):
            yield other


def _is_variant(block: Block, policy: str) -> bool:
    """Whether a policy is the focus' rule under other settings, rather than another rule."""
    rules = {block.protocol.policies[name].recipe.get("policy", name) for name in (policy, block.focus)}
    return len(rules) == 1


def _kind(block: Block, policy: str) -> str:
    return "recovery" if block.protocol.policies[policy].training.get("recovery_steps") else "variant"


def _row(block: Block, policy: str, kind: str) -> tuple[Shown, ...]:
    values = (mean_shown(block.series(policy, name), one.measure) for name, one in block.protocol.endpoints.items())
    return (kind, policy, ", ".join(map(str, block.seeds)), *values)

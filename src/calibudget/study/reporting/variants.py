"""Exploratory variants beside the frozen comparison that they must not replace (paper, Table 3 and Figure 2 (b))."""

from __future__ import annotations

from collections.abc import Iterator

from calibudget.study.reporting.comparisons import heads
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.shown import mean_shown
from calibudget.study.reporting.table import Shown, Table


def exploratory(results: Results, block: Block) -> Iterator[tuple[Block, str]]:
    """Policies that only exploratory points train at a block's budget, floor and backbone, each once."""
    known = set(block.policies)
    for other in _beside(results, block):
        if results.protocol.points[other.point].transfer is not None:
            continue
        for policy in other.policies:
            if policy not in known:
                known.add(policy)
                yield other, policy


def variants_table(results: Results, block: Block) -> Table | None:
    """Variants of the focus and checks on fixed indices, each under the frozen references of the same seeds.

    Returns:
        None where no exploratory point tries a variant of the focus.
    """
    variants = [(other, policy) for other, policy in exploratory(results, block) if _is_variant(results, policy)]
    if not variants:
        return None
    rows: list[tuple[Shown, ...]] = []
    for other in dict.fromkeys(other for other, _ in variants):
        rows += [
            _row(results, other, one, "frozen reference")
            for one in (results.protocol.focus, other.comparator)
            if one in other.policies
        ]
        rows += [_row(results, other, one, _kind(results, one)) for here, one in variants if here == other]
    for other in _beside(results, block):
        transfer = results.protocol.points[other.point].transfer
        if transfer is not None and transfer.picks == "fixed":
            rows += [_row(results, other, one, f"fixed indices of seed {transfer.seed}") for one in other.policies]
    return Table(
        name=f"variants-{block.point}-{block.backbone}",
        title=f"Exploratory variants of {results.protocol.focus}, and fixed indices: {block.point}, {block.backbone}",
        columns=("diagnostic", "policy", "seeds", *heads(results)),
        rows=tuple(rows),
        notes=(f"None revises {results.protocol.focus}: only rows of the same seeds can be compared.",),
    )


def _beside(results: Results, block: Block) -> Iterator[Block]:
    """Other exploratory blocks that train at a block's budget, floor and backbone."""
    point = results.protocol.points[block.point]
    for other in results.blocks():
        at = results.protocol.points[other.point]
        if other.point == block.point or other.status != "exploratory" or other.backbone != block.backbone:
            continue
        if at.train and (at.budget, at.floor, at.unit) == (point.budget, point.floor, point.unit):
            yield other


def _is_variant(results: Results, policy: str) -> bool:
    """Whether a policy is the focus' rule under other settings, rather than another rule."""
    rules = {results.protocol.policies[name].recipe.get("policy", name) for name in (policy, results.protocol.focus)}
    return len(rules) == 1


def _kind(results: Results, policy: str) -> str:
    return "recovery" if results.protocol.policies[policy].training.get("recovery_steps") else "variant"


def _row(results: Results, block: Block, policy: str, kind: str) -> tuple[Shown, ...]:
    values = (
        mean_shown(results.series(block, policy, name), one.measure) for name, one in results.protocol.endpoints.items()
    )
    return (kind, policy, ", ".join(map(str, block.seeds)), *values)

"""What the policies moved, whether it goes with what was gained, and how stable quotas are (paper 3.3, 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean

from calibudget.allocation.stability import pearson, spearman, stability
from calibudget.errors import StudyError
from calibudget.pipeline.user_tasks import held_out_task
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.table import Quantity, Shown, Table, decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaShift:
    """From a comparator's quotas to a policy's.

    Attributes:
        by_source: change of each source's quota, policy minus comparator, in code-point order.
        moved: units that changed their source, half the L1 distance.
        share: `moved` over the budget, 0 to 1.
        largest: largest change of one source, without sign.
    """

    by_source: Mapping[str, int]
    moved: int
    share: float
    largest: int


def quota_shift(policy: Mapping[str, int], comparator: Mapping[str, int]) -> QuotaShift:
    """Compare two quota vectors of one budget.

    Raises:
        StudyError: other sources, other budgets, or a budget of 0.
    """
    lacking = sorted(policy.keys() ^ comparator.keys())
    if lacking:
        raise StudyError(f"only one of the two allocations has the source {lacking[0]!r}")
    budgets = {sum(policy.values()), sum(comparator.values())}
    if len(budgets) != 1 or 0 in budgets:
        raise StudyError(f"two allocations are compared at one budget above 0, not at {sorted(budgets)}")
    changes = {label: policy[label] - comparator[label] for label in sorted(policy)}
    moved = sum(map(abs, changes.values())) // 2
    return QuotaShift(
        by_source=changes,
        moved=moved,
        share=moved / budgets.pop(),
        largest=max(map(abs, changes.values())),
    )


def shifts(block: Block) -> dict[int, QuotaShift]:
    """From the comparator's quotas to the focus', by seed."""
    first, second = (block.quotas(name) for name in (block.focus, block.comparator))
    return {seed: quota_shift(first[seed], second[seed]) for seed in block.seeds}


def moved_table(block: Block) -> Table:
    """Units that changed their source, by seed, and how what moved goes with what was gained."""
    found = shifts(block)
    rows = [(str(seed), one.moved, Quantity(value=100 * one.share), one.largest) for seed, one in found.items()]
    return Table(
        name=f"moved-{block.key}",
        title=f"Quotas moved from {block.comparator} to {block.focus}: {block.place}",
        columns=("seed", "moved", "of the budget (%)", "largest change of a source"),
        rows=tuple(rows),
        notes=("Moved is half the sum of all changes.", *_gains(block, found)),
    )


def _gains(block: Block, found: Mapping[int, QuotaShift]) -> tuple[str, ...]:
    """The correlations between a source's quota change and the change of its own task's score, or its own records'."""
    notes = []
    focus, comparator = block.focus, block.comparator
    for measure in ("accuracy", "nll"):
        pairs: list[tuple[float, float]] = []
        for seed, shift in found.items():
            first, second = (block.result(one, seed).tasks for one in (focus, comparator))
            for source, change in shift.by_source.items():
                own = [side.get(source) or side.get(held_out_task(source)) for side in (first, second)]
                scores = [None if one is None else one.metrics.get(measure) for one in own]
                if scores[0] is not None and scores[1] is not None:
                    pairs.append((float(change), scores[0] - scores[1]))
        if not pairs:
            continue
        exact = [[Fraction(value) for value in values] for values in zip(*pairs, strict=True)]
        both = [
            f"{name} {'undefined' if r is None else decimal(r, 3, signed=True)}"
            for name, r in (("Pearson", pearson(*exact)), ("Spearman", spearman(*exact)))
        ]
        notes.append(
            f"Quota change against {measure} change over {len(pairs)} pairs of source and seed: {', '.join(both)}."
        )
    return tuple(notes)


def quotas_table(block: Block) -> Table:
    """Mean quotas by source and policy, and the mean shift from comparator to focus."""
    quotas = {policy: block.quotas(policy) for policy in block.policies}
    found = shifts(block)
    labels = sorted(next(iter(quotas[block.policies[0]].values())))

    def row(label: str) -> tuple[Shown, ...]:
        means = (Quantity(value=fmean(own[label] for own in quotas[p].values()), digits=1) for p in block.policies)
        shift = fmean(one.by_source[label] for one in found.values())
        return (label, *means, Quantity(value=shift, digits=1, signed=True))

    return Table(
        name=f"quotas-{block.key}",
        title=f"Mean quotas by source: {block.place}",
        columns=("source", *block.policies, f"{block.focus} minus {block.comparator}"),
        rows=tuple(row(label) for label in labels),
    )


def stability_table(results: Results) -> Table:
    """How far quotas move between calibration splits, by point, backbone and policy."""
    rows: list[tuple[Shown, ...]] = []
    for block in results.blocks():
        if block.definition.transfer is not None or len(block.seeds) < 2:
            continue
        for policy in block.policies:
            found = stability(list(block.quotas(policy).values()))
            correlations = (Quantity(value=r, digits=4) for r in (found.smallest_spearman, found.smallest_pearson))
            start = (block.point, block.backbone, policy, found.splits)
            rows.append((*start, Quantity(value=found.mean_quota_sd), found.largest_range, *correlations))
    heads = ("point", "backbone", "policy", "splits", "mean sd", "largest range", "least Spearman", "least Pearson")
    return Table(
        name="stability",
        title="Quotas between calibration splits",
        columns=heads,
        rows=tuple(rows),
        notes=("A correlation is undefined where a policy gives all sources the same quota.",),
    )

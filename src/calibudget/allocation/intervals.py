"""How far the quotas move with the calibration sample: intervals over bootstrap replicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

#: Tail left out on each side, in thousandths: 95% intervals.
TAIL_PER_MILLE: Final = 25

Number = TypeVar("Number", int, float)


def quota_intervals(quotas: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The 95% interval of each source's quota: inverted-CDF quantiles at 2.5% and 97.5%.

    Args:
        quotas: one row a replicate, shape (R, K), R >= 1.

    Returns:
        [lo, hi] of each source, shape (K, 2); both are quotas that some replicate gave.
    """
    return [central(column) for column in zip(*quotas, strict=True)]


def central(values: Sequence[Number]) -> tuple[Number, Number]:
    """The 95% interval of one number over its replicates: inverted-CDF quantiles at 2.5% and 97.5%.

    Args:
        values: shape (R,), R >= 1.
    """
    ordered = sorted(values)
    return ordered[_rank(TAIL_PER_MILLE, len(values))], ordered[_rank(1000 - TAIL_PER_MILLE, len(values))]


def _rank(per_mille: int, count: int) -> int:
    """Index of the smallest value whose share of values at or below it reaches the quantile."""
    return -(-per_mille * count // 1000) - 1

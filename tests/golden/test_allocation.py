"""Quotas with a known right answer, each with the place that it comes from."""

from __future__ import annotations

import pytest

from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.quotas import allocate, apportion

COMMONSENSE = {
    "boolq": 9_427,
    "piqa": 16_113,
    "social_i_qa": 33_410,
    "hellaswag": 39_905,
    "winogrande": 63_238,
    "arc_easy": 2_251,
    "arc_challenge": 1_119,
    "openbookqa": 4_957,
}
AMPLE = 10**9


def quotas(capacities: tuple[int, ...], utilities: tuple[float, ...], budget: int, floor: int = 0) -> tuple[int, ...]:
    labels = "abcdefgh"[: len(capacities)]
    result = allocate(
        dict(zip(labels, capacities, strict=True)), dict(zip(labels, utilities, strict=True)), budget, floor
    )
    return tuple(result.quotas.values())


def test_quotas(subtests: pytest.Subtests) -> None:
    for capacities, utilities, budget, floor, expected in [
        # Paper, appendix "Stable Tie Breaking and Selection Identity": the synthetic allocation test.
        ((3, 10, 10), (1, 2, 3), 12, 2, (3, 4, 5)),
        # Largest remainders of 1.55, 1.55, 1.9: the tie between the first two goes by label (appendix, same place).
        ((AMPLE, AMPLE, AMPLE), (155, 155, 190), 5, 0, (2, 1, 2)),
        ((100,) * 8, (1,) * 8, 10, 0, (2, 2, 1, 1, 1, 1, 1, 1)),
        # Paper 2.3: overflow of a source at its capacity goes to those with room; the tie of 2.5 and 2.5 by label.
        ((5, 100, 100), (2, 1, 1), 10, 0, (5, 3, 2)),
        # Paper 2.3: floors min(N, f) = (0, 3, 3), R = 14 of which the second source can take 4.
        ((0, 7, 50), (9, 1, 1), 20, 3, (0, 7, 13)),
        # Where caps bind: docs/decisions, the water level. Leaves 19 to 3 : 1.
        ((1, 100, 100), (10, 3, 1), 20, 0, (1, 14, 5)),
        # A float means the rational that it holds: 0.3 < 3 * 0.1 and 0.2 = 2 * 0.1 as doubles.
        ((AMPLE, AMPLE, AMPLE), (3, 2, 1), 3, 0, (2, 1, 0)),
        ((AMPLE, AMPLE, AMPLE), (0.3, 0.2, 0.1), 3, 0, (1, 1, 1)),
    ]:
        with subtests.test(budget=budget):
            assert quotas(capacities, utilities, budget, floor) == expected


@pytest.mark.parametrize(("floor", "floors_sum", "residual"), [(1_150, 9_069, 931), (950, 7_600, 2_400)])
def test_the_papers_operating_points(floor: int, floors_sum: int, residual: int) -> None:
    """Paper 2.3 and 3.4: B = 10,000 at f = 1,150, and the prespecified f = 950 audit."""
    pools = {label: size - 100 for label, size in COMMONSENSE.items()}
    made = plan(AllocationRequest(policy="floor-sqrt", pool_sizes=pools, budget=10_000, floor=floor))
    assert sum(COMMONSENSE.values()) == 170_420
    assert sum(row.floor_quota for row in made.sources.values()) == floors_sum
    assert made.residual_budget == residual
    assert sum(made.quotas.values()) == 10_000


def test_shares_of_the_papers_synthetic_example() -> None:
    """Residual capacities (1, 8, 8), R = 6: shares 1, 2, 3 (paper 2.3)."""
    result = allocate({"a": 3, "b": 10, "c": 10}, {"a": 1, "b": 2, "c": 3}, 12, 2)
    assert result.shares == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert result.floor_quotas == {"a": 2, "b": 2, "c": 2}


def test_faults_of_the_field(subtests: pytest.Subtests) -> None:
    for sizes, utilities, budget, expected in [
        # huggingface/datasets #7954: every row once.
        ((3, 4, 3), (1, 1, 1), 10, (3, 4, 3)),
        # huggingface/datasets PR #7157: utility 0 and floor 0 draw nothing, at once.
        ((10, 10), (0, 1), 5, (0, 5)),
        # hiyouga/LlamaFactory #9121: no rounding to multiples of the smallest.
        ((632, 3_893), (1, 1), 4_000, (632, 3_368)),
        # huggingface/trl #2112: half of the budget each, not half of each pool.
        ((100, 10_000), (1, 1), 150, (75, 75)),
        # NVIDIA/Megatron-LM #705: no quota above its pool.
        ((5, 10_000), (0.001, 0.999), 10_004, (5, 9_999)),
    ]:
        with subtests.test(budget=budget):
            assert quotas(sizes, utilities, budget) == expected


def test_weights_that_collapse_keep_the_floors() -> None:
    """sangmichaelxie/doremi #5: one need 50 times the others."""
    sizes = dict.fromkeys("abcd", 1_000)
    result = allocate(sizes, {"a": 50, "b": 1, "c": 1, "d": 1}, 1_000, 100)
    assert min(result.quotas.values()) >= 100


def test_apportion_between_bounds() -> None:
    """Lower bounds hold whole quotas up; they aren't floors given before a share of the rest."""
    result = apportion({"a": 1, "b": 1, "c": 8}, 10, lower={"a": 2, "b": 0.5, "c": 0}, upper={"a": 9, "b": 9, "c": 6.9})
    assert result.quotas == {"a": 2, "b": 2, "c": 6}
    assert result.floor_quotas == {"a": 2, "b": 1, "c": 0}

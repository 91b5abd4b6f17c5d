"""The paper's Tables 1 and 2, recomputed from their own columns and rows."""

from __future__ import annotations

import pytest

from calibudget.errors import InputError
from calibudget.evaluation.aggregates import COMMON_TASKS, MATH_TASKS, PANELS
from calibudget.study.reporting.claims import effects, t_test_p, wins
from calibudget.study.reporting.intervals import strata_of

# Paper, Table 2: seeds 42 to 44, mean, SD (pp).
TABLE_2 = {
    "Math": ((-1.12, 0.27, 0.26), -0.20, 0.80),
    "Common": ((0.49, 0.38, 0.81), 0.56, 0.22),
    "Fragile": ((0.59, 0.32, 0.48), 0.46, 0.14),
    "Macro": ((0.16, 0.36, 0.70), 0.41, 0.27),
    "Overall": ((-0.32, 0.33, 0.53), 0.18, 0.44),
}


@pytest.mark.parametrize("metric", TABLE_2)
def test_mean_and_sd_of_table_2_come_out_of_its_rows(metric: str) -> None:
    rows, mean, sd = TABLE_2[metric]
    found = effects(dict(zip((42, 43, 44), rows, strict=True)), dict.fromkeys((42, 43, 44), 0.0))
    assert round(found.mean, 2) == mean
    assert found.sd is not None
    assert round(found.sd, 2) == sd


def test_table_3_and_table_2_tell_the_same_of_seed_42() -> None:
    policy = {"Math": 30.20, "Common": 71.29, "Fragile": 71.79, "Macro": 63.07, "Overall": 50.74}
    comparator = {"Math": 31.32, "Common": 70.80, "Fragile": 71.20, "Macro": 62.91, "Overall": 51.06}
    for metric, ((first, *_), _, _) in TABLE_2.items():
        found = effects({42: policy[metric]}, {42: comparator[metric]})
        assert found.by_seed[42] == pytest.approx(first, abs=0.0101)
        assert found.sd is None


def test_strata_are_the_groups_that_a_panel_averages() -> None:
    assert [(one.tasks, one.weight) for one in strata_of("MacroAvg", PANELS)] == [((*MATH_TASKS, *COMMON_TASKS), 1)]  # type: ignore[comparison-overlap]
    assert [(one.tasks, float(one.weight)) for one in strata_of("Overall", PANELS)] == [
        (MATH_TASKS, 0.5),
        (COMMON_TASKS, 0.5),
    ]
    mixed = {"A": ("x", "y", "B"), "B": ("u", "v")}
    assert [(one.tasks, one.weight * 3) for one in strata_of("A", mixed)] == [(("x", "y"), 2), (("u", "v"), 1)]  # type: ignore[comparison-overlap]
    with pytest.raises(InputError):
        strata_of("A", {"A": ("A",)})


def test_wins_are_counted_in_the_direction_of_the_metric() -> None:
    first = {("a", 1): 0.5, ("a", 2): 0.5, ("b", 1): 0.25, ("b", 2): 0.75}
    second = {("a", 1): 0.25, ("a", 2): 0.5, ("b", 1): 0.5, ("b", 2): 0.5}
    higher, lower = wins(first, second, "higher"), wins(first, second, "lower")
    assert (higher.won, higher.tied, higher.lost, higher.total) == (2, 1, 1, 4)
    assert (lower.won, lower.tied, lower.lost) == (1, 1, 2)


def test_rounding_is_neither_a_difference_nor_a_spread() -> None:
    policy, comparator = {1: 0.1 + 0.2, 2: 0.71, 3: 0.11}, {1: 0.3, 2: 0.71, 3: 0.11}
    assert policy[1] != comparator[1]
    assert set(effects(policy, comparator).by_seed.values()) == {0.0}
    same = effects({1: 0.71, 2: 0.81, 3: 0.11}, {1: 0.7, 2: 0.8, 3: 0.1})
    assert len(set(same.by_seed.values())) > 1
    assert same.sd == 0
    assert t_test_p(same) is None
    small = effects({1: 0.5 + 1e-9, 2: 0.5 + 2e-9}, {1: 0.5, 2: 0.5})
    assert small.mean == pytest.approx(1.5e-9, rel=1e-6)
    assert small.sd
    tasks = wins(
        {("a", seed): one for seed, one in policy.items()}, {("a", s): o for s, o in comparator.items()}, "higher"
    )
    assert (tasks.won, tasks.tied, tasks.lost) == (0, 3, 0)

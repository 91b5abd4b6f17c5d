from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from calibudget.errors import InputError
from calibudget.evaluation.aggregates import COMMON_TASKS, MATH_TASKS, PANELS
from calibudget.study.reporting.intervals import (
    Draws,
    Stratum,
    TaskItems,
    bootstrap_examples,
    bootstrap_tasks,
    strata_of,
)

R = 20_000


def quantiles(values: list[float], level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)


def test_tasks_agree_with_every_possible_resample() -> None:
    differences = {"a": [0.3], "b": [-0.1], "c": [0.7], "d": [1.1]}
    strata = [Stratum(tasks=("a", "b", "c"), weight=Fraction(2, 3)), Stratum(tasks=("d",), weight=Fraction(1, 3))]
    every = [
        2 / 3 * np.mean([differences[task][0] for task in drawn]) + 1.1 / 3
        for drawn in itertools.product("abc", repeat=3)
    ]
    # a level whose quantiles lie within a step of the exact distribution, not at its edge
    found = bootstrap_tasks(differences, strata, draws=Draws("x", 1, R, 0.83))
    assert (found.low, found.high) == pytest.approx(quantiles(every, 0.83))  # type: ignore[arg-type]


def test_tasks_and_seeds_agree_with_every_possible_resample() -> None:
    table = np.array([[0.3, -0.2, 0.5], [-0.1, 0.4, 0.9]])
    strata = [Stratum(tasks=("a", "b"), weight=Fraction(1))]
    every = [
        table[list(tasks)][:, list(seeds)].mean()
        for tasks in itertools.product(range(2), repeat=2)
        for seeds in itertools.product(range(3), repeat=3)
    ]
    differences = dict(zip("ab", table.tolist(), strict=True))
    found = bootstrap_tasks(differences, strata, over="tasks and seeds", draws=Draws("x", 1, R, 0.9))
    assert (found.low, found.high) == pytest.approx(quantiles(every, 0.9))


@pytest.mark.parametrize("shared", [True, False])
def test_examples_agree_with_every_possible_resample(shared: bool) -> None:
    values = np.array([[0.0, 1.0, 5.0], [2.0, -3.0, 0.5]])
    drawn_items = list(itertools.product(range(3), repeat=3))
    every = []
    for seeds in itertools.product(range(2), repeat=2):
        if shared:
            every += [values[list(seeds)][:, list(items)].mean() for items in drawn_items]
        else:
            every += [
                (values[seeds[0], list(first)].mean() + values[seeds[1], list(second)].mean()) / 2
                for first in drawn_items
                for second in drawn_items
            ]
    tasks = {"t": TaskItems(differences=list(values), shared=shared)}
    found = bootstrap_examples(tasks, {"t": 0.5}, Draws("x", 3, R, 0.86))
    low, high = quantiles(every, 0.86)
    assert (found.low, found.high) == pytest.approx((low / 2, high / 2), abs=0.035)


def test_items_that_seeds_share_widen_the_interval() -> None:
    one = np.sin(np.arange(200.0))  # the same differences in all seeds: only items vary
    crossed = bootstrap_examples({"t": TaskItems(differences=[one] * 4, shared=True)}, {"t": 1.0}, Draws("x", 1, 2000))
    nested = bootstrap_examples({"t": TaskItems(differences=[one] * 4, shared=False)}, {"t": 1.0}, Draws("x", 1, 2000))
    standard_error = one.std() / np.sqrt(200)
    assert crossed.high - crossed.low == pytest.approx(2 * 1.96 * standard_error, rel=0.08)
    assert nested.high - nested.low < 0.75 * (crossed.high - crossed.low)


def test_a_stream_belongs_to_its_name_and_seed() -> None:
    differences = {name: [float(number % 7)] for number, name in enumerate("abcdefgh")}
    strata = [Stratum(tasks=tuple("abcdefgh"), weight=Fraction(1))]

    def ask(name: str, seed: int) -> tuple[float, float]:
        found = bootstrap_tasks(differences, strata, draws=Draws(name, seed, 97))
        return found.low, found.high

    assert ask("x", 1) == ask("x", 1)
    assert len({ask(name, seed) for name in "xyz" for seed in range(4)}) > 1


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

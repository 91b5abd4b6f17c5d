"""The words of the claim boundary hold of the numbers beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibudget.study.reporting.certainty import claims_table
from calibudget.study.reporting.claim_boundary import boundary_table
from calibudget.study.reporting.paired_differences import contrasts_table
from calibudget.study.reporting.table import to_markdown

SIX = list(range(42, 48))
POINTS = {"main": {"seeds": SIX}}


def spread_over(mean: float, sd: float) -> dict[int, float]:
    return {seed: mean + sd * (-1) ** seed for seed in SIX}


def row(results: Any, start: str = "rule against plain (main") -> tuple[str, str]:
    found = next(one for one in boundary_table(results).rows if str(one[0]).startswith(start))
    return str(found[1]), str(found[2])


def test_a_harm_that_is_shown_is_called_one(made_up: Any) -> None:
    results = made_up(POINTS, {"BoolQ": spread_over(-0.02, 0.0005)})
    supports, open_ones = row(results)
    assert "BoolQ is shown to be worse: -2.00 pp, adjusted p < 0.001." in supports
    assert "not the same way" not in supports.partition("NLL")[0]
    assert "A difference on BoolQ" not in open_ones
    assert "on average it is worse on BoolQ." in open_ones
    table = claims_table(results)
    assert table.rows[0][4] == "shown to be worse"
    assert to_markdown(table).splitlines()[4].count("< 0.001") == 2


@pytest.mark.parametrize("rest", [-1e-17, -3e-16, -4e-5])
def test_what_is_printed_as_nothing_is_no_loss(made_up: Any, rest: float) -> None:
    results = made_up(POINTS, {name: spread_over(rest, 0.01) for name in ("BoolQ", "Kept")})
    supports, open_ones = row(results)
    assert "BoolQ doesn't move on average, to the digits shown (+0.00 pp)." in supports
    assert "worse" not in supports + open_ones
    assert "-0.00" not in to_markdown(boundary_table(results))


def test_a_loss_as_large_as_the_guard_allows_is_within_it(made_up: Any) -> None:
    guard = {"endpoint": "Kept", "may_fall": 0.01}
    kept = row(made_up(POINTS, {"Kept": dict.fromkeys(SIX, -0.01)}, retention=guard), "Retention")
    assert kept[0] == "Kept changes by -1.00 pp on average, within the 1.00 pp that it may get worse by."
    lost = row(made_up(POINTS, {"Kept": dict.fromkeys(SIX, -0.011)}, retention=guard), "Retention")
    assert "beyond the 1.00 pp" in lost[0]


def test_a_guard_is_neither_judged_early_nor_left_out(made_up: Any) -> None:
    guard = {"endpoint": "Kept", "may_fall": 0.01}
    early = made_up(POINTS, {"Kept": spread_over(-0.02, 0.001)}, retention=guard, finished={"main": SIX[:2]})
    supports, open_ones = row(early, "Retention (main, tiny; confirmatory, interim: 2 of 6 seeds)")
    assert supports == "Kept changes by -2.00 pp on average so far; it may get worse by 1.00 pp."
    assert "judged once all seeds are there" in open_ones
    undefined = row(made_up(POINTS, {"Kept": {44: None}}, retention=guard), "Retention")
    assert undefined[0] == "Nothing: Kept is undefined in main/tiny/rule/44."


def test_rounding_is_no_seed_won(made_up: Any) -> None:
    results = made_up(POINTS, {"BoolQ": dict.fromkeys(SIX, 1e-16)})
    assert contrasts_table(next(results.blocks())).rows[0][2] == "0/6"


def test_a_task_that_was_trained_on_is_named(made_up: Any) -> None:
    results = made_up(POINTS, {})
    assert not any("Trained on" in note for note in boundary_table(results).notes)
    found = dict(results.results)
    for cell in list(found)[:2]:
        own = replace(found[cell].tasks["boolq"], shared=3)
        found[cell] = replace(found[cell], tasks={**found[cell].tasks, "boolq": own})
    notes = boundary_table(replace(results, results=found)).notes
    assert any("the training sets of 2 cells hold prompts of boolq, up to 3 of its 100 items" in one for one in notes)

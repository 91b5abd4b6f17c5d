"""When a claim is judged, and with which others."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from calibudget.study.reporting.certainty import claims_table, intervals_table, judge
from calibudget.study.reporting.claim_boundary import boundary_table
from calibudget.study.reporting.report import tables_of
from calibudget.study.reporting.table import Quantity, Table, to_csv, to_latex, to_markdown

TEN = list(range(42, 52))
#: Differences that three seeds are enough for: t = 36, two degrees of freedom.
CLEAR = {seed: 0.020 + 0.001 * (seed % 3) for seed in TEN}


def verdicts(table: Table) -> list[object]:
    return [row[4] for row in table.rows]


def values(table: Table, column: str) -> list[float | None]:
    place = table.columns.index(column)
    return [one.value for row in table.rows if isinstance(one := row[place], Quantity)]


def test_no_claim_survives_a_peek(made_up: Any) -> None:
    points, differences = {"main": {"seeds": TEN}}, {"BoolQ": CLEAR}
    early = made_up(points, differences, finished={"main": TEN[:3]})
    table = claims_table(early)
    assert verdicts(table) == ["interim: 3 of 10 seeds"] * 2
    for column in ("p", "adjusted p", "detectable"):
        assert values(table, column) == [None, None]
    assert values(table, "difference")[0] == pytest.approx(2.1)
    shown = [show(one) for one in (table, boundary_table(early)) for show in (to_markdown, to_latex, to_csv)]
    assert all("interim" in text for text in shown)
    for word in ("supported", "BoolQ is better", "in every seed", "adjusted p 0", "adjusted p <"):
        assert not any(word in text for text in shown), word
    assert [row["claim"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == ["interim: 3 of 10 seeds"] * 2
    assert all("interim: 3 of 10 seeds" in one.title for one in tables_of(early) if "(confirmatory" in one.title)
    assert values(intervals_table(next(early.blocks())), "t test p") == [None] * 3
    # the same three differences and seven more like them
    assert verdicts(claims_table(made_up(points, differences))) == ["supported", "not supported"]


def test_a_point_that_its_own_criterion_ended_is_judged(made_up: Any) -> None:
    rule = {"after": 3, "policy": "rule", "endpoint": "BoolQ", "bound": 0.9}
    results = made_up({"main": {"seeds": TEN, "continue_if": rule}}, {"BoolQ": CLEAR}, finished={"main": TEN[:3]})
    assert len(results.stopped) == 14
    assert verdicts(claims_table(results)) == ["supported", "not supported"]


def test_a_criterion_that_waits_for_cells_has_ended_nothing(made_up: Any) -> None:
    rule = {"after": 3, "policy": "rule", "endpoint": "BoolQ", "of_point": "main"}
    points = {"main": {"seeds": TEN}, "low": {"seeds": TEN, "continue_if": rule}}
    results = made_up(points, {"BoolQ": CLEAR}, finished={"main": TEN[:2], "low": TEN[:3]})
    assert all("can't be judged" in reason for reason in results.stopped.values())
    assert verdicts(claims_table(results)) == ["interim: 2 of 10 seeds"] * 2 + ["interim: 3 of 10 seeds"] * 2


def test_an_undefined_endpoint_keeps_its_row_and_its_place_in_the_family(made_up: Any) -> None:
    points = {"main": {"seeds": TEN[:4]}}
    results = made_up(points, {"BoolQ": CLEAR, "NLL": {43: None, 45: None}})
    table = claims_table(results)
    assert verdicts(table) == ["supported", "not shown: undefined in main/tiny/rule/43 and 1 more"]
    p, adjusted = values(table, "p")[0], values(table, "adjusted p")[0]
    assert p is not None
    assert adjusted == pytest.approx(2 * p)
    assert values(table, "adjusted p")[1] is None
    said = boundary_table(results).rows[0]
    assert "NLL shows nothing: it is undefined in main/tiny/rule/43 and 1 more." in str(said[1])
    assert "A difference on NLL beyond these cells: no test is possible." in str(said[2])


def test_confirmatory_claims_count_before_their_cells_are_there(made_up: Any) -> None:
    points = {"main": {"seeds": TEN[:4]}, "more": {"seeds": TEN[:4]}, "free": {"seeds": TEN, "status": "exploratory"}}
    differences = {"BoolQ": CLEAR}
    results = made_up(points, differences, finished={"main": TEN[:4]})
    judged = judge(results)
    assert [(one.block.point, one.verdict) for one in judged] == [
        ("main", "supported"),
        ("main", "not supported"),
        ("more", "interim: 0 of 4 seeds"),
        ("more", "interim: 0 of 4 seeds"),
    ]
    claim = judged[0].claim
    assert claim is not None
    assert claim.p is not None
    assert claim.adjusted_p == pytest.approx(4 * claim.p)
    later = judge(made_up(points, differences))[0].claim
    assert later is not None
    assert later.adjusted_p <= claim.adjusted_p  # type: ignore[operator]
    assert any("can only fall" in note for note in claims_table(results).notes)

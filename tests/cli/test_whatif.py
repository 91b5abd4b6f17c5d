"""`calibudget whatif`: a grid as a table and as JSON, refused points told, bad lists refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SIZES = (
    "arc_challenge=1019 arc_easy=2151 boolq=9327 hellaswag=39805 "
    "openbookqa=4857 piqa=16013 social_i_qa=33310 winogrande=63138"
)


@pytest.fixture
def statistics(tmp_path: Path, calibudget: Any) -> Any:
    """A statistics.json of two sources, b harder than a."""
    rows = [
        {"source": label, "nll": nll + n % 5 / 10, "correct": n % wrong > 0}
        for label, nll, wrong in (("a", 1.0, 5), ("b", 3.0, 2))
        for n in range(40)
    ]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = calibudget(
        "statistics", tmp_path / "scores.jsonl", "--pool-sizes", "a=500", "--pool-sizes", "b=500",
        "--output", tmp_path / "statistics.json",
    )  # fmt: skip
    assert outcome.code == 0
    return tmp_path / "statistics.json"


def test_the_paper_s_two_floors_side_by_side(calibudget: Any) -> None:
    """Paper 3.4, floor sensitivity: f = 950 leaves a residual of 2,400 where 1,150 leaves 931."""
    arguments = ["whatif", "--sizes", SIZES, "--budget", 10000, "--floor", "1150,950", "--policy", "floor-sqrt"]
    points = json.loads(calibudget(*arguments, "--json").out)["points"]
    assert [(point["floor"], point["residual_budget"]) for point in points] == [(1150, 931), (950, 2400)]
    assert all(sum(point["quotas"].values()) == 10000 for point in points)
    shown = calibudget(*arguments).out
    assert "1,150" in shown
    assert "2,400" in shown


def test_every_combination_is_a_point_and_options_repeat_or_list(calibudget: Any, statistics: Any) -> None:
    outcome = calibudget(
        "whatif", statistics, "--budget", "100,200", "--floor", 10, "--floor", "20% of budget",
        "--need-exponent", "0,1,2", "--json",
    )  # fmt: skip
    told = json.loads(outcome.out)
    assert told["policy"] == "calibudget"
    assert len(told["points"]) == 2 * 2 * 3
    first, *_, last = told["points"]
    assert (first["budget"], first["floor"], first["exponents"]["need"]) == (100, 10, 0)
    assert (last["budget"], last["floor"], last["residual_budget"]) == (200, "20% of budget", 120)
    hard = [point["quotas"]["b"] for point in told["points"][:3]]
    assert hard == sorted(hard)
    assert hard[0] < hard[-1]


def test_a_point_of_the_grid_equals_the_allocation(calibudget: Any, statistics: Any) -> None:
    arguments = [statistics, "--budget", 300, "--floor", 20, "--reliability-exponent", 2, "--json"]
    point = json.loads(calibudget("whatif", *arguments).out)["points"][0]
    plan = json.loads(calibudget("allocate", *arguments).out)
    assert point["quotas"] == {label: row["quota"] for label, row in plan["sources"].items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "10,"], "a list with an empty item"),
        (["--budget", "1e3"], "'1e3' isn't an integer"),
        (["--budget", "10", "--need-exponent", "one"], "--need-exponent"),
        (["--budget", "10", "--floor", "0.1"], "can't be read"),
        (["--budget", "10", "--policy", "best"], "no policy 'best'"),
        (["--budget", "10", "--sizes", "a=3"], "one of the two"),
    ],
)
def test_bad_grids_are_refused(calibudget: Any, statistics: Any, arguments: Any, message: str) -> None:
    outcome = calibudget("whatif", statistics, *arguments)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_directory_without_statistics_is_refused_with_the_way_out(calibudget: Any, tmp_path: Path) -> None:
    outcome = calibudget("whatif", tmp_path, "--budget", 10, "--floor", 1)
    assert outcome.code == 2
    assert f"{tmp_path}: has no statistics.json" in outcome.err
    assert "--sizes" in outcome.err

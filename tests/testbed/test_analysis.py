"""The analysis on made-up results, against sums done by hand."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.errors import StudyError
from testbed.analysis import PointResults, claims, slopes_found
from testbed.choice import choose
from testbed.figures import differences, exposures
from testbed.protocol import read_protocol
from testbed.report import markdown
from testbed.results import Results

LABELS = ("cards", "dice")


def add_cell(
    results: Any,
    policy: Any,
    seed: Any,
    nll: Any,
    *,
    point: str = "main",
    quotas: Any = (32, 32),
    predicted: Any = None,
) -> None:
    """A cell whose two families have these NLLs, two records each that lie 0.5 apart."""
    tasks, items = {}, {}
    for label, value in zip([*LABELS, "gsm_symbolic"], [*nll, 2.0], strict=True):
        tasks[label] = {"items": 2, "nll": value, "accuracy": 0.5, "checked": 2}
        items[label] = base64.b64encode(np.array([value - 0.25, value + 0.25], dtype="<f2").tobytes()).decode()
    run = f"run-{policy}-{seed}-{point}"
    spent = {"select": 0.0, "train": 2.0, "evaluate": 1.0}
    results.add(
        run, {"quotas": dict(zip(LABELS, quotas, strict=True)), "tasks": tasks, "items": items, "seconds": spent}
    )
    cell = {
        "point": point, "policy": policy, "seed": seed, "quotas": dict(zip(LABELS, quotas, strict=True)), "run": run,
        "warm_up_examples": 0, "warm_up_seconds": 0.0, "predicted": predicted, "notes": {}, "device": "cpu",
        "code": "c" * 64,
    }  # fmt: skip
    results.add(f"cell-{policy}-{seed}-{point}", cell)


@pytest.fixture
def protocol(tiny_protocol: Any) -> Any:
    return read_protocol(tiny_protocol)


@pytest.fixture
def results(tmp_path: Path, protocol: Any) -> Any:
    made = Results.create(tmp_path / "results.jsonl", {"protocol": protocol.sha256, "data": "b" * 64})
    add_cell(made, "equal", 1, (1.0, 3.0))
    add_cell(made, "equal", 2, (1.5, 3.5))
    add_cell(made, "calibudget", 1, (1.0, 2.5), quotas=(16, 64))
    add_cell(made, "calibudget", 2, (1.5, 3.25), quotas=(16, 64))
    return made


@pytest.mark.slow
def test_paired_differences_are_those_by_hand(results: Any, protocol: Any) -> None:
    point = PointResults(results, protocol.point("main"))
    assert point.labels == list(LABELS)
    assert point.policies == ["equal", "calibudget"]
    assert point.macro("equal", "nll") == {1: 2.0, 2: 2.5}
    one = point.compare("calibudget", "equal")
    assert one.nll.by_seed == {1: -0.25, 2: -0.125}
    assert one.nll.mean == -0.1875
    sd = math.sqrt(2 * 0.0625**2)
    assert one.nll.sd == pytest.approx(sd)
    reach = 12.706204736432095 * sd / math.sqrt(2)  # Student's t at 0.975 with one degree of freedom
    assert one.interval == pytest.approx((-0.1875 - reach, -0.1875 + reach))
    assert one.relative == pytest.approx(-0.1875 / 2.25)
    assert (one.wins.won, one.wins.tied, one.wins.lost) == (2, 2, 0)
    assert one.accuracy.mean == 0.0
    assert one.examples.low == -0.25
    assert one.examples.high == -0.125
    assert not claims([one], 1)["equal"].supported  # two seeds support nothing
    logs = (math.log(2.5 / 3.0) / 2, math.log(3.25 / 3.5) / 2)
    assert list(one.log_ratio.by_seed.values()) == pytest.approx(logs)
    assert point.contributions("calibudget", "equal") == {"cards": 0.0, "dice": -0.1875}
    assert point.without("calibudget", "equal", "cards").by_seed == {1: -0.5, 2: -0.25}
    assert point.without("calibudget", "equal", "dice").mean == 0.0


def test_slopes_are_least_squares_over_log_quotas(results: Any, protocol: Any) -> None:
    point = PointResults(results, protocol.point("main"))
    found = slopes_found([point])
    # dice: 3.0 and 3.5 at 32, 2.5 and 3.25 at 64, so the means fall by 0.375 in one doubling
    assert found["dice"] == pytest.approx(0.375)
    assert found["cards"] == pytest.approx(0.0)


def test_seeds_are_paired_and_a_missing_training_is_named(results: Any, protocol: Any) -> None:
    add_cell(results, "even", 2, (1.0, 1.0))
    point = PointResults(results, protocol.point("main"))
    assert list(point.compare("even", "equal").nll.by_seed) == [2]
    assert point.compare("even", "equal").interval is None
    results.add("cell-lost", {"point": "main", "policy": "equal", "seed": 3, "quotas": {}, "run": "run-nowhere"})
    with pytest.raises(StudyError, match="main/equal/3"):
        PointResults(results, protocol.point("main"))


def test_the_best_rule_is_chosen_once_all_are_finished(results: Any, protocol: Any) -> None:
    rule = protocol.policies["chosen"]
    assert choose(protocol, results, rule) is None
    add_cell(results, "answers", 1, (1.0, 2.0), point="choose")
    assert choose(protocol, results, rule) is None
    add_cell(results, "checkpoints", 1, (1.0, 1.5), point="choose")
    assert choose(protocol, results, rule) == "checkpoints"


@pytest.mark.slow
def test_the_report_and_the_figures_are_written_from_the_numbers(results: Any, protocol: Any) -> None:
    text = markdown(protocol, results)
    assert protocol.sha256 in text
    assert "| calibudget | 2 | 2.0625 (0.4419) | 50.0 (0.0) |" in text
    assert "4 of 8 cells finished" in text
    point = PointResults(results, protocol.point("main"))
    svg = differences([("calibudget", [point.compare("calibudget", "equal")])])
    assert svg == differences([("calibudget", [point.compare("calibudget", "equal")])])
    assert b"- equal" in svg
    assert b"dice" in exposures(point)

"""The committed results of the testbed say what the documents say."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from calibudget.study.reporting.claims import effects, t_interval, t_test_p
from testbed.analysis import finished
from testbed.answers_report import answers_markdown, is_confirmed, verdicts
from testbed.protocol import Protocol, read_protocol
from testbed.report import markdown
from testbed.results import Results
from testbed.second_look import best_by_all, curves_through_all, need_and_gains, pool_luck

ROOT = Path(__file__).parents[2]
Committed = Callable[[str], tuple[Protocol, Results]]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def committed(
    protocol_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Protocol, Results]]:
    """A testbed's protocol and its committed results, by name."""

    @cache
    def of(name: str) -> tuple[Protocol, Results]:
        protocol = read_protocol(protocol_path.with_name("testbed-1.yaml" if name == "testbed" else f"{name}.yaml"))
        path = tmp_path_factory.mktemp(name) / "results.jsonl"
        path.write_bytes(gzip.decompress((RESULTS / name / "results.jsonl.gz").read_bytes()))
        return protocol, Results.read(path, protocol.sha256)

    return of


@pytest.mark.slow
def test_the_headline_differences_come_out_of_the_committed_lines(committed: Committed) -> None:
    point = finished(*committed("testbed"))["paper"]
    macro = {policy: point.macro(policy, "nll") for policy in point.policies}
    found = effects(macro["calibudget"], macro["val-error-floor"])
    assert found.seeds == 10
    assert (round(found.mean, 4), round(found.sd, 4)) == (-0.0355, 0.0118)  # type: ignore[arg-type]
    assert t_interval(found) == pytest.approx((-0.0439, -0.0270), abs=1e-4)
    shared = macro["chosen"].keys() & macro["calibudget"].keys()
    chosen = effects(macro["chosen"], {seed: macro["calibudget"][seed] for seed in shared})
    assert (chosen.seeds, round(chosen.mean, 4)) == (8, -0.0840)
    # and without the family whose sentences repeat, the sign turns
    assert round(point.without("chosen", "calibudget", "caesar_cipher").mean, 4) == 0.0770
    assert round(point.without("calibudget", "val-error-floor", "caesar_cipher").mean, 4) == -0.0309


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "tables"), [("testbed", markdown), ("testbed-2", markdown), ("testbed-3", answers_markdown)]
)
def test_the_committed_tables_are_written_again_byte_for_byte(committed: Committed, name: str, tables: Any) -> None:
    assert (RESULTS / name / "tables.md").read_text(encoding="utf-8").endswith(tables(*committed(name)))


@pytest.mark.slow
def test_the_second_testbed_refutes_learning_curves_and_confirms_need(committed: Committed) -> None:
    point = finished(*committed("testbed-2"))["confirm"]
    macro = {policy: point.macro(policy, "nll") for policy in point.policies}
    claimed = {
        "calibudget": {"pooled": -0.0233, "equal": -0.0099, "val-error-floor": -0.0099},
        "learning-curve": {"calibudget": 0.0431, "equal": 0.0332, "slice-tuner": 0.0458},
    }
    for policy, others in claimed.items():
        for other, difference in others.items():
            found = effects(macro[policy], macro[other])
            assert (found.seeds, round(found.mean, 4)) == (10, difference)
            low, high = t_interval(found)  # type: ignore[misc]
            assert low > 0 or high < 0
    # and the family that the curves favoured gained what there was to gain, not what they promised
    gained = point.contributions("learning-curve", "equal")
    assert round(gained["rotate_matrix"], 4) == -0.0029
    assert min(point.task(*cell, "rotate_matrix", "nll") for cell in point.cells) > 0


@pytest.mark.full
def test_the_second_looks_tables_over_all_trainings_are_written_again(committed: Committed) -> None:
    for folder, name in (("testbed", "paper"), ("testbed-2", "confirm")):
        point = finished(*committed(folder))[name]
        curves = curves_through_all(point)
        text = (RESULTS / folder / "second_look.md").read_text(encoding="utf-8")
        for part in (best_by_all(point, curves), pool_luck(point, curves), need_and_gains(point)):
            assert part in text


@pytest.mark.slow
def test_one_set_confirms_the_rule_for_answers_and_the_other_does_not(committed: Committed) -> None:
    third_protocol, results = committed("testbed-3")
    points = finished(third_protocol, results)
    comparators = third_protocol.claims["set-1"]["answers"]
    first, second = (verdicts(points[name], "answers", comparators) for name in ("set-1", "set-2"))
    assert is_confirmed(first)
    assert [round(100 * claim.difference.mean, 2) for claim in first] == [1.48, 1.45, 2.82, 1.95, 4.6]
    assert not is_confirmed(second)
    assert [claim.holds for claim in second] == [False] * 5
    assert [round(100 * claim.difference.mean, 2) for claim in second] == [0.6, 0.53, 1.29, 0.43, 1.17]
    primary = t_test_p(second[0].difference)
    assert primary is not None
    assert round(primary, 3) == 0.089
    halves = {"set-1-half": [0.93, 1.47, 3.35, 1.39, 5.92], "set-2-half": [1.14, 1.05, 2.1, 1.36, 0.98]}
    for name, differences in halves.items():
        half = verdicts(points[name], "answers-50", third_protocol.claims[name]["answers-50"])
        assert is_confirmed(half)
        assert [round(100 * claim.difference.mean, 2) for claim in half] == differences

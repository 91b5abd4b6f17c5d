"""The committed results of the testbed say what the documents say."""

from __future__ import annotations

import gzip
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
RESULTS = ROOT / "benchmarks" / "results"
COMMITTED, SECOND, THIRD = (RESULTS / name for name in ("testbed", "testbed-2", "testbed-3"))


def unpack(folder: Path, target: Path) -> Path:
    target.write_bytes(gzip.decompress((folder / "results.jsonl.gz").read_bytes()))
    return target


@pytest.fixture(scope="module")
def protocol(protocol_path: Path) -> Any:
    return read_protocol(protocol_path)


@pytest.fixture(scope="module")
def second_protocol(protocol_path: Path) -> Any:
    return read_protocol(protocol_path.with_name("testbed-2.yaml"))


@pytest.fixture(scope="module")
def third_protocol(protocol_path: Path) -> Protocol:
    return read_protocol(protocol_path.with_name("testbed-3.yaml"))


def results_in(folder: Path, protocol: Protocol, made: pytest.TempPathFactory) -> Results:
    return Results.read(unpack(folder, made.mktemp(folder.name) / "results.jsonl"), protocol.sha256)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, protocol: Any) -> Any:
    return results_in(COMMITTED, protocol, tmp_path_factory)


@pytest.fixture(scope="module")
def second_results(tmp_path_factory: pytest.TempPathFactory, second_protocol: Any) -> Any:
    return results_in(SECOND, second_protocol, tmp_path_factory)


@pytest.fixture(scope="module")
def third_results(tmp_path_factory: pytest.TempPathFactory, third_protocol: Protocol) -> Results:
    return results_in(THIRD, third_protocol, tmp_path_factory)


@pytest.mark.slow
def test_the_headline_differences_come_out_of_the_committed_lines(protocol: Any, results: Any) -> None:
    point = finished(protocol, results)["paper"]
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


@pytest.mark.slow
def test_every_confirmatory_cell_is_of_the_frozen_protocol_and_one_code(protocol: Any, results: Any) -> None:
    cells = list(results.lines("cell"))
    assert len({cell["code"] for cell in cells}) == 1
    counts = {name: sum(cell["point"] == name for cell in cells) for name in ("paper", "choose", "curves", "mixing")}
    assert counts == {"paper": 60, "choose": 14, "curves": 39, "mixing": 0}
    for cell in cells:
        if cell["policy"] not in ("chosen-charged", "lc-25-50-charged", "lc-checkpoints-charged"):
            assert sum(cell["quotas"].values()) == protocol.point(cell["point"]).budget


@pytest.mark.full
def test_the_committed_tables_are_written_again_byte_for_byte(protocol: Any, results: Any) -> None:
    text = (COMMITTED / "tables.md").read_text(encoding="utf-8")
    assert text.endswith(markdown(protocol, results))


@pytest.mark.slow
def test_the_second_testbed_is_whole_and_of_one_code(second_protocol: Any, second_results: Any) -> None:
    cells = list(second_results.lines("cell"))
    assert second_protocol.sha256.startswith("4fb1fef4")
    assert len(cells) == 120
    assert len({cell["code"] for cell in cells}) == 1
    for cell in cells:
        charged = cell["warm_up_examples"] // 2 if cell["policy"] == "learning-curve-charged" else 0
        assert sum(cell["quotas"].values()) == 4_000 - charged


@pytest.mark.slow
def test_the_second_testbed_refutes_learning_curves_and_confirms_need(
    second_protocol: Any, second_results: Any
) -> None:
    point = finished(second_protocol, second_results)["confirm"]
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
def test_the_second_tables_are_written_again_byte_for_byte(second_protocol: Any, second_results: Any) -> None:
    text = (SECOND / "tables.md").read_text(encoding="utf-8")
    assert text.endswith(markdown(second_protocol, second_results))


@pytest.mark.full
def test_the_second_looks_tables_over_all_trainings_are_written_again(
    protocol: Protocol, results: Results, second_protocol: Protocol, second_results: Results
) -> None:
    every = ((COMMITTED, protocol, results, "paper"), (SECOND, second_protocol, second_results, "confirm"))
    for folder, of, lines, name in every:
        point = finished(of, lines)[name]
        curves = curves_through_all(point)
        text = (folder / "second_look.md").read_text(encoding="utf-8")
        for part in (best_by_all(point, curves), pool_luck(point, curves), need_and_gains(point)):
            assert part in text


@pytest.mark.slow
def test_one_set_confirms_the_rule_for_answers_and_the_other_does_not(
    third_protocol: Protocol, third_results: Results
) -> None:
    points = finished(third_protocol, third_results)
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


@pytest.mark.slow
def test_every_cell_of_the_third_testbed_spends_the_budget_and_pools_go_round(third_results: Results) -> None:
    cells = list(third_results.lines("cell"))
    assert len(cells) == 340
    for cell in cells:
        paid = 400 if cell["policy"] == "answers-charged" else 0
        scale = 2 if cell["point"].endswith("-half") else 1
        assert sum(cell["quotas"].values()) == 4000 // scale - paid
        if cell["policy"] != "pooled":
            assert min(cell["quotas"].values()) >= 200 // scale
            continue
        order = sorted(cell["quotas"], key=cell["quotas"].__getitem__)
        assert order.index(sorted(cell["quotas"])[-cell["seed"] % 8]) < 2  # the pool of 900


@pytest.mark.full
def test_the_third_tables_are_written_again_byte_for_byte(third_protocol: Protocol, third_results: Results) -> None:
    text = (THIRD / "tables.md").read_text(encoding="utf-8")
    assert text.endswith(answers_markdown(third_protocol, third_results))

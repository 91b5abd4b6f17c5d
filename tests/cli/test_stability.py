"""`calibudget stability`: statistics or scores of several calibration splits, policy by policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def write_scores(path: Path, shift: Any) -> Any:
    rows = [
        {"source": label, "nll": nll + shift * (n % 7) / 10, "correct": (n + round(10 * shift)) % wrong > 0}
        for label, nll, wrong in (("a", 1.0, 9), ("b", 3.0, 2), ("c", 2.0, 3))
        for n in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def splits(tmp_path: Path) -> Any:
    return [write_scores(tmp_path / f"scores{number}.jsonl", number / 3) for number in range(3)]


SIZES = ("--pool-sizes", "a=400", "--pool-sizes", "b=500", "--pool-sizes", "c=600")
ASKED = ("--budget", 600, "--floor", 50)


@pytest.mark.slow
def test_the_audit_is_that_of_the_allocations_themselves(calibudget: Any, splits: Any, tmp_path: Path) -> None:
    told = json.loads(calibudget("stability", *splits, *SIZES, *ASKED, "--json").out)
    assert told["splits"] == 3
    assert set(told["policies"]) == {"calibudget", "need", "need-availability", "need-reliability", "val-error-floor"}
    quotas = []
    for number, scores in enumerate(splits):
        file = tmp_path / f"statistics{number}.json"
        calibudget("statistics", scores, *SIZES, "--output", file)
        plan = json.loads(calibudget("allocate", file, *ASKED, "--json").out)
        quotas.append([row["quota"] for row in plan["sources"].values()])
    ranges = [max(column) - min(column) for column in zip(*quotas, strict=True)]
    assert told["policies"]["calibudget"]["largest_range"] == max(ranges) > 0
    files = [tmp_path / f"statistics{number}.json" for number in range(3)]
    assert json.loads(calibudget("stability", *files, *ASKED, "--json").out) == told


@pytest.mark.parametrize(
    ("count", "arguments", "message"),
    [
        (1, [*SIZES, *ASKED], "at least two calibration splits"),
        (2, [*ASKED], "give --pool-sizes"),
        (2, [*SIZES, *ASKED, "--policy", "best"], "no policy 'best'"),
        (2, [*SIZES, "--budget", "9000"], "above all pools"),
        (2, [*SIZES, *ASKED[:2], "--floor", "500"], "above the budget"),
    ],
)
def test_what_can_t_be_compared_is_refused(
    calibudget: Any, splits: Any, count: int, arguments: Any, message: str
) -> None:
    outcome = calibudget("stability", *splits[:count], *arguments)
    assert outcome.code == 2
    assert message in outcome.err

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from calibudget.errors import RecipeError, TrainingError
from testbed.grid import cells
from testbed.policies import REFUTED, decide
from testbed.protocol import read_protocol

#: Digest and cells of each protocol. Changing a value after cells have run orphans their results.
FROZEN = {
    "testbed-1": ("f2257ac93dc10a59f647aca69254049d9df7deab27e445e2c180e13af70e9468", None),
    "testbed-2": ("4fb1fef4ff8bc157c8069527e06d77aa5366f5e922c43bdd7098e206085648dd", 120),
    "testbed-3": ("5bd5bebfd1e72476893657756a9ab436b747fcfe92faa17424bd7a3adaa7f2ae", 340),
    "testbed-3-pilot": ("ab355209acc60d36a5a9b14c787622001656e4bbbc7c3c539353ce380510d4e5", None),
}


def test_the_shipped_protocols_are_the_frozen_ones(protocol_path: Path) -> None:
    protocols = {name: read_protocol(protocol_path.with_name(f"{name}.yaml")) for name in FROZEN}
    for name, (digest, count) in FROZEN.items():
        assert protocols[name].sha256 == digest
        assert count is None or len(cells(protocols[name])) == count
    seeds = [
        {seed for point in protocols[name].points for seed in point.seeds} for name in ("testbed-3", "testbed-3-pilot")
    ]
    assert not seeds[0] & seeds[1]


def test_claims_are_about_cells_that_there_are(tiny_protocol: Path) -> None:
    text = tiny_protocol.read_text(encoding="utf-8")
    plain = read_protocol(tiny_protocol).sha256
    tiny_protocol.write_text(text + "claims: {main: {calibudget: [equal, even]}}\n", encoding="utf-8")
    assert read_protocol(tiny_protocol).sha256 != plain
    for claims, message in (
        ("{nowhere: {calibudget: [equal]}}", "no comparison whose first point is 'nowhere'"),
        ("{main: {answers: [equal]}}", "main: no cell of 'answers' is in that comparison"),
        ("{main: {equal: [checkpoints]}}", "no cell of 'checkpoints' is in that comparison"),
    ):
        tiny_protocol.write_text(text + f"claims: {claims}\n", encoding="utf-8")
        with pytest.raises(RecipeError, match=message):
            read_protocol(tiny_protocol)


def test_a_rule_that_was_refuted_cannot_be_run_again(protocol_path: Path) -> None:
    protocol = read_protocol(protocol_path)
    left = [rule for rule in protocol.policies.values() if rule.rule in REFUTED]
    assert {rule.rule for rule in left} == set(REFUTED)
    for rule in left:
        with pytest.raises(RecipeError, match=f"the rule '{rule.rule}' was refuted and has left"):
            decide(cast("Any", None), protocol.points[0], rule, 1)


@pytest.mark.parametrize(
    ("before", "after", "error", "message"),
    [
        ("budget: 96", "budget: 0", RecipeError, r"tiny.yaml:\d+: must be at least 1"),
        ("decoded: 2", "decoded: 2\nsurprise: 1", RecipeError, r"tiny.yaml:9: is not a field of this format"),
        ("[equal, even", "[equal, evn", RecipeError, "no policy 'evn'"),
        ("choosing: choose", "choosing: chose", RecipeError, "no point 'chose'"),
        ("seeds: [1, 2]", "seeds: [1, 1]", RecipeError, "stands twice"),
        ("name: main", "name: choose", RecipeError, "the same name"),
        ("rank: 4", "rang: 4", TrainingError, "rang"),
        (
            "half: choose, status: confirmatory",
            "half: third, status: confirmatory",
            RecipeError,
            "must be 'choose', 'confirm', ",
        ),
    ],
)
def test_bad_protocols_are_refused_by_name(
    tiny_protocol: Path, before: str, after: str, error: Any, message: str
) -> None:
    text = tiny_protocol.read_text(encoding="utf-8")
    assert before in text
    tiny_protocol.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(error, match=message):
        read_protocol(tiny_protocol)

"""The grid's order: cells that are made several at a time and end in any order give what one after another gives."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import StudyError
from calibudget.pipeline.progress import silent
from calibudget.study.execution import GridOutcome, Here, Planned, attempt, make, run_grid
from calibudget.study.grid import StopRule, cells_of
from calibudget.study.protocol import load_protocol

#: Beside the small study's points: one that always stops, and one whose criterion looks at cells that have one too.
MORE = """\
  strict:
    {budget: 24, floor: 2, seeds: [42, 43, 44], continue_if: {policy: calibudget, endpoint: Both, bound: 1.5}}
  nested:
    budget: 24
    floor: 3
    seeds: [42, 43, 44]
    continue_if: {after: 2, policy: calibudget, endpoint: Both, of_point: low-floor, margin: 0.9}
"""


class Shuffled:
    """Makes cells when their turn is drawn; the most that were at work at once is `most`."""

    def __init__(self, runner: Any, size: int, seed: int) -> None:
        self.size, self.most, self._runner, self._draws = size, 0, runner, random.Random(seed)  # noqa: S311 - draws an order
        self._started: list[Planned] = []

    def start(self, planned: Planned) -> None:
        self._started.append(planned)
        self.most = max(self.most, len(self._started))

    def finished(self) -> Any:
        self._draws.shuffle(self._started)
        ended = [self._started.pop() for _ in range(self._draws.randint(1, len(self._started)))]
        return [(one, attempt(one, partial(make, one, self._runner, silent))) for one in ended]


@pytest.fixture
def outcome_of(small: Path, tmp_path: Path, runner: Any) -> Any:
    """Runs the small study's grid with these makers in a folder of its own."""
    small.write_text(small.read_text() + MORE)
    protocol = load_protocol(small)

    def content(cell: Any) -> str:  # cells that the protocol makes once: equal in all but their point
        return f"{cell.policy} {cell.seed} {cell.split_seed} {cell.floor} {cell.point == 'splits'}"

    def go(makers: Any, folder: str) -> GridOutcome:
        planned = [
            Planned(
                cell=cell,
                directory=tmp_path / folder / cell.name,
                digests={name: f"{content(cell).encode().hex():0<64.64}" for name in ("protocol", "data", "code")},
            )
            for cell in cells_of(protocol)
        ]
        return run_grid(planned, makers, stops=StopRule(protocol=protocol))

    return go


@pytest.mark.slow
def test_any_order_gives_what_one_after_another_gives(outcome_of: Any, runner: Any) -> None:
    broken = ("main/tiny/equal/42", "low-floor/tiny/calibudget/43")
    runner.broken = dict.fromkeys(broken, StudyError("no luck"))
    alone = outcome_of(Here(runner), "alone")
    assert alone.stopped
    assert alone.failed
    asked = Counter(runner.asked)
    for seed in range(3):
        runner.asked.clear()
        makers = Shuffled(runner, size=4, seed=seed)
        assert outcome_of(makers, f"shuffled-{seed}") == alone
        assert Counter(runner.asked) == asked
        assert makers.most == 4

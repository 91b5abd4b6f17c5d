from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.hardware import Device
from calibudget.scoring.batches import measure_all
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import ScorerSettings
from calibudget.scoring.settings import ScorerPool, make_scorer
from calibudget.workers import _environment, _Process
from tests.scoring.conftest import items_of

FAKE = ScorerSettings(kind="fake")


def pids(pool: Any) -> Any:
    return [worker._process.pid for worker in pool._workers.values()]


def killed_but_for(field: str) -> Callable[..., Any]:
    """What asks a worker and kills it first, unless the request has a field."""
    ask = _Process.ask

    def ask_and_kill(self: _Process, request: Any, folder: Path | None) -> Any:
        if field not in request:
            self._process.kill()
        return ask(self, request, folder)

    return ask_and_kill


def is_alive(pid: Any) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same(workers: int) -> None:
    items = items_of(30)
    with ScorerPool(FAKE, workers=workers) as pool:
        assert measure_all(pool, items) == measure_all(FakeScorer(), items)
        assert pool.describe() == FakeScorer().describe()
        assert pool.lengths(items) == FakeScorer().lengths(items)
        assert len(pids(pool)) == workers


@pytest.mark.slow
def test_a_real_scorer_gives_the_same_bits_and_errors(tiny_directory: Path) -> None:
    settings = ScorerSettings(model=str(tiny_directory), device="cpu", batch_tokens=400)
    items = items_of(6)
    too_long = replace(items[0], record=replace(items[0].record, completion="river " * 600))
    with ScorerPool(settings, workers=2) as pool:
        found = measure_all(pool, items)
        described = dict(pool.describe())
        with pytest.raises(ScoringError, match="record apples-0000"):
            measure_all(pool, [too_long])
    scorer = make_scorer(settings)
    assert found == measure_all(scorer, items)
    assert described == scorer.describe()


@pytest.mark.slow
def test_a_killed_worker_costs_its_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    items, ask = items_of(40), _Process.ask
    told: list[int] = []
    killed: list[int] = []

    def ask_and_kill(self: _Process, request: Any, folder: Path | None) -> Any:
        if told and not killed:
            killed.append(self._process.pid)
            self._process.kill()
        return ask(self, request, folder)

    monkeypatch.setattr(_Process, "ask", ask_and_kill)
    with ScorerPool(FAKE, workers=2) as pool:
        found = measure_all(pool, items, progress=lambda done, _total: told.append(done))
        assert found == measure_all(FakeScorer(), items)
        assert killed
        assert killed[0] not in pids(pool)
    assert told == sorted(told)


@pytest.mark.slow
def test_a_batch_that_kills_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(4, ("apples",))
    with ScorerPool(ScorerSettings(kind="fake", seconds=30), workers=1) as pool:
        batches = pool.batches(items)
        monkeypatch.setattr("calibudget.workers._Process.ask", killed_but_for("settings"))
        with pytest.raises(ScoringError, match=r"source 'apples', record apples-0000: .*ended 3 workers"):
            list(pool.measure_batches({0: [items[i] for i in batches[0]]}))


def test_workers_end_with_the_pool() -> None:
    with ScorerPool(ScorerSettings(kind="fake", seconds=60), workers=2) as pool:
        pool.describe()
        batches = pool.measure_batches({n: items_of(1) for n in range(4)})
        del batches
        started = pids(pool)
        assert all(is_alive(pid) for pid in started)
    assert not any(is_alive(pid) for pid in started)


def test_workers_that_end_while_starting_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScorerPool(FAKE, workers=2) as pool:
        monkeypatch.setattr("calibudget.workers._Process.ask", killed_but_for("nothing"))
        with pytest.raises(ScoringError, match=r"3 workers ended while starting, the last with exit code -9"):
            measure_all(pool, items_of(1))


def test_workers_that_score_unlike_are_refused() -> None:
    """Say one of them finds no GPU: mixing their scores would make bits depend on who scored what."""
    with ScorerPool(FAKE, workers=2) as pool:
        pool._described = {"engine": "fake", "model": {"name": "another"}}
        with pytest.raises(ScoringError, match="scorers differ"):
            pool.batches(items_of(1))


@pytest.mark.parametrize(
    ("device", "gpus", "visible", "seen"),
    [
        ("cpu", 1, "0,1", ["", ""]),
        ("cuda", 1, "", ["0", "1"]),
        ("auto", 1, "5,7", ["5", "7"]),
        ("cuda", 1, "5", ["5", "5"]),
        ("cuda", 2, "", ["0,1", "2,3"]),
        ("cuda", 2, "4,5,6,7", ["4,5", "6,7"]),
        (None, 1, "5,7", ["5,7", "5,7"]),
    ],
)
def test_each_worker_sees_its_own_gpus(
    monkeypatch: pytest.MonkeyPatch, device: Device | None, gpus: int, visible: str, seen: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [_environment(device, gpus, place, 2)["CUDA_VISIBLE_DEVICES"] for place in range(2)] == seen

"""A study whose cells are made by two actors of a Ray cluster, which the tests start and some of which they kill."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from filelock import FileLock

from calibudget.errors import StudyError
from calibudget.pipeline.progress import silent
from calibudget.study.freeze import make_ready
from calibudget.study.protocol import load_protocol
from calibudget.study.run import StudyOutcome, freeze_study, run_study
from calibudget.workers import Pool, _Actor
from tests.study.conftest import with_points

QUOTAS = """\
points:
  main: {budget: 24, floor: 4, seeds: [42, 43], policies: [equal, calibudget], train: false}
  huge: {budget: 100000, unit: tokens, floor: 4, seeds: [42], policies: [calibudget], train: false}
"""


def records(directory: Path) -> dict[str, bytes]:
    """Every file of a study's cells and calibration by its path; `cell.json` without seconds and self digest."""
    found = {}
    for path in sorted([*directory.glob("cells/**/*"), *directory.glob("calibration/**/*")]):
        if not path.is_file() or path.name in ("manifest.json", "SHA256SUMS.tsv", "training.jsonl", "evaluation.json"):
            continue  # these tell the time
        content = path.read_bytes()
        if path.name == "cell.json":
            content = json.dumps(json.loads(content) | {"seconds": None, "cell_sha256": None}).encode()
        found[path.relative_to(directory).as_posix()] = content
    return found


@pytest.mark.parametrize("given", [{"workers": 2}, {"address": "auto"}])
def test_workers_and_an_address_need_the_engine(small: Path, given: Any) -> None:
    with pytest.raises(StudyError, match="engine: ray"):
        run_study(load_protocol(small), small.parent, **given)


@pytest.mark.slow
def test_scores_that_cells_share_are_made_once(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, directory = load_protocol(with_points(small, QUOTAS)), small.parent / "study"
    runner = make_ready(protocol, freeze_study(protocol, directory), directory, silent).runner
    cells = [cell for cell in runner.settings if cell.name in ("main/tiny/equal/42", "main/tiny/calibudget/42")]
    calls, both = [], Barrier(3)

    class Lock(FileLock):
        def __enter__(self) -> Any:
            waiting.submit(both.wait)
            return super().__enter__()

    def scored(recipe: Any, *, output: Path, **_more: Any) -> None:
        both.wait()  # the other cell is at the lock too
        calls.append(output)
        output.write_bytes(b"scores")

    monkeypatch.setattr("calibudget.study.cell.FileLock", Lock)
    monkeypatch.setattr("calibudget.study.cell.score", scored)
    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(2) as waiting:
        paths = list(threads.map(lambda cell: runner._scores(runner.settings[cell].recipe, cell, silent), cells))
    assert len(cells) == 2
    assert paths[0] == paths[1]
    assert calls == paths[:1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A connection to a cluster of two CPUs, which studies use as it is."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Cells by how often they were sent to an actor; those in `killed` lose theirs, each as often as it says."""
    counts: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    ask = _Actor.ask

    def noting(self: _Actor, request: Any, folder: Path | None) -> Any:
        name = request.get("cell")
        if name is not None:
            counts[name] += 1
            if killed[name]:
                killed[name] -= 1
                self._ray.kill(self._actor)
        return ask(self, request, folder)

    monkeypatch.setattr(_Actor, "ask", noting)
    counts.killed = killed  # type: ignore[attr-defined]
    return counts


def on_ray(protocol: Path, directory: Path, workers: int = 2) -> StudyOutcome:
    return run_study(load_protocol(protocol), directory, engine="ray", workers=workers)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_leftovers")
class TestCluster:
    def test_failed_cells_and_killed_actors_spoil_no_others(self, cluster: Any, small: Path, sent: Any) -> None:
        directory, plain = small.parent / "study", small.parent / "plain"
        with_points(small, QUOTAS)
        for each in (directory, plain):
            freeze_study(load_protocol(small), each)
        sent.killed.update({"main/tiny/equal/42": 1, "main/tiny/calibudget/43": 2})
        outcome = on_ray(small, directory)
        failed = {cell.name: reason for cell, reason in outcome.grid.failed.items()}
        assert set(failed) == {"main/tiny/calibudget/43", "huge/tiny/calibudget/42"}
        assert "ended 2 workers" in failed["main/tiny/calibudget/43"]
        assert failed["huge/tiny/calibudget/42"].startswith("AllocationError")
        for name, reason in failed.items():
            note = json.loads((directory / "cells" / name / "failure.json").read_bytes())
            assert f"{note['error']}: {note['message']}" == reason
        assert sent == {
            "main/tiny/equal/42": 2,
            "main/tiny/calibudget/42": 1,
            "main/tiny/equal/43": 1,
            "main/tiny/calibudget/43": 2,
            "huge/tiny/calibudget/42": 1,
        }
        again = run_study(load_protocol(small), directory)  # another engine goes on
        assert [cell.name for cell in again.grid.failed] == ["huge/tiny/calibudget/42"]
        run_study(load_protocol(small), plain)
        assert records(directory) == records(plain)

    def test_a_worker_that_cant_run_the_study_ends_it(
        self, cluster: Any, small: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = small.parent / "study"
        freeze_study(load_protocol(with_points(small, QUOTAS)), directory)
        start_workers = Pool._start_workers

        def elsewhere(self: Any) -> None:
            self._first = self._first | {"directory": str(small.parent / "nowhere")}
            start_workers(self)

        monkeypatch.setattr(Pool, "_start_workers", elsewhere)
        with pytest.raises(StudyError, match=r"can't run the study: .*nowhere: no study is frozen"):
            on_ray(small, directory, workers=1)
        assert not list(directory.glob("cells/**/cell.json"))

"""kill -9 in the middle of scoring: the rest is done later, nothing twice.

What is killed is killed by the run itself, at a batch that the test names, so nothing depends on how fast it goes.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from calibudget.scoring.batches import measure_all
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import CalibrationItem
from calibudget.tasks.answers import AnswerSpec
from tests.conftest import record_of

RUN = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import record_of
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.batches import measure_all
from calibudget.scoring.settings import ScorerPool
from calibudget.scoring.scorer import CalibrationItem
from calibudget.scoring.scorer import ScorerSettings
from calibudget.tasks.answers import AnswerSpec
from calibudget.workers import EndedError, _Process

answer = AnswerSpec(kind="choice", labels=("answer1", "answer2"))
items = [CalibrationItem(record=record_of("apples", n), answer=answer) for n in range(160)]
log = open({log!r}, "a")
begun = []

class Logged(FakeScorer):
    def measure(self, items):
        log.write(items[0].record.record_id + "\\n")
        log.flush()
        begun.append(items)
        if {stop!r} == "run" and len(begun) == {batches}:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(items)

def until_it_ends(worker, request, folder):
    raise EndedError(str(worker._process.wait()))

def at(done, _total):
    if done != 16 * {batches}:
        return
    if {stop!r} == "run":
        os.kill(os.getpid(), signal.SIGKILL)
    if {stop!r} == "wait":
        _Process.ask = until_it_ends  # no batch is begun any more, so the run waits for a reply
        print("waiting", flush=True)

def work(scorer, progress=None):
    measured = measure_all(scorer, items, journal_path=Path({journal!r}), progress=progress)
    Path({out!r}).write_text(json.dumps([[one.record_id, one.nll, one.text] for one in measured]))

if {workers}:
    with ScorerPool(ScorerSettings(kind="fake"), workers={workers}) as pool:
        with pool._changed:  # no job is taken before all are there
            for _ in range({workers}):
                pool.submit(None)
            print(json.dumps([worker._process.pid for worker in pool._workers.values()]), flush=True)
        work(pool, at)
else:
    print("[]", flush=True)
    work(Logged())
"""
ANSWER = AnswerSpec(kind="choice", labels=("answer1", "answer2"))


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Start a scoring run in a process of its own; it tells its workers' ids once it begins.

    `stop` says what ends at the batch of that number: the "run", or the work ("wait").
    """
    tests = str(request.config.rootpath / "tests")
    started = []

    def run(workers: Any, stop: str = "", batches: int = 0) -> Any:
        paths = {name: str(tmp_path / name) for name in ("log", "journal", "out")}
        code = RUN.format(tests=tests, workers=workers, stop=stop, batches=batches, **paths)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, json.loads(process.stdout.readline())  # type: ignore[union-attr]

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def expected() -> Any:
    items = [CalibrationItem(record=record_of("apples", n), answer=ANSWER) for n in range(160)]
    return [[one.record_id, one.nll, one.text] for one in measure_all(FakeScorer(), items)]


def finish(start: Any, workers: Any, tmp_path: Path) -> Any:
    process, _ = start(workers)
    assert process.wait() == 0
    return json.loads((tmp_path / "out").read_text())


def wait_for_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        ended = os.pidfd_open(pid)
        select.select([ended], [], [])
        os.close(ended)


def at_batches(*few: Any) -> Any:
    """A few of the ten batches for every test run, and the rest for a full one."""
    rest = [pytest.param(number, marks=pytest.mark.full) for number in range(1, 11) if number not in few]
    return pytest.mark.parametrize("batch", [*few, *rest])


@at_batches(1, 6)  # type: ignore[untyped-decorator]
def test_a_killed_run_resumes_with_nothing_scored_twice(start: Any, expected: Any, tmp_path: Path, batch: Any) -> None:
    process, _ = start(0, "run", batch)
    assert process.wait() == -signal.SIGKILL
    first = (tmp_path / "log").read_text().split()
    assert len(first) == batch
    assert finish(start, 0, tmp_path) == expected
    second = (tmp_path / "log").read_text().split()[len(first) :]
    # The batch under way when the kill came is begun again; a journalled one never is.
    assert set(first) & set(second) == {first[-1]}
    assert len(set(first) | set(second)) == 10


@at_batches(4)  # type: ignore[untyped-decorator]
def test_a_killed_sharded_run_resumes_and_leaves_no_workers(
    start: Any, expected: Any, tmp_path: Path, batch: Any
) -> None:
    process, workers = start(2, "run", batch)
    assert process.wait() == -signal.SIGKILL
    for worker in workers:  # or the test's own time is up
        wait_for_end(worker)
    journal = tmp_path / "journal"
    before = journal.read_bytes()
    assert before.count(b'"batch":') == batch
    assert finish(start, 2, tmp_path) == expected
    # What was journalled stays as it was, and no batch is there twice; a torn last line is cut off.
    assert journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert sorted(int(number) for number in re.findall(rb'"batch":(\d+)', journal.read_bytes())) == list(range(10))


def test_an_interrupted_sharded_run_resumes(start: Any, expected: Any, tmp_path: Path) -> None:
    process, workers = start(2, "wait", 3)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.wait() not in (0, -signal.SIGKILL)
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    assert 3 <= (tmp_path / "journal").read_bytes().count(b'"batch":') < 10
    assert finish(start, 2, tmp_path) == expected

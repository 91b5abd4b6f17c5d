"""kill -9 in the middle of scoring, of the run or of one of its workers: the rest is done later, nothing twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from calibudget.scoring import CalibrationItem, FakeScorer, measure_all
from calibudget.tasks import AnswerSpec

RUN = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import make_record
from calibudget.scoring import CalibrationItem, FakeScorer, LocalPool, ScorerSettings, measure_all
from calibudget.tasks import AnswerSpec

answer = AnswerSpec(kind="choice", labels=("answer1", "answer2"))
items = [CalibrationItem(record=make_record("apples", n), answer=answer) for n in range(160)]
log = open({log!r}, "a")

class Logged(FakeScorer):
    def measure(self, items):
        log.write(items[0].record.record_id + "\\n")
        log.flush()
        return super().measure(items)

def work(scorer):
    measured = measure_all(scorer, items, journal_path=Path({journal!r}))
    Path({out!r}).write_text(json.dumps([[one.record_id, one.nll, one.text] for one in measured]))

if {workers}:
    with LocalPool(ScorerSettings(kind="fake", seconds={seconds}), workers={workers}) as pool:
        pool._hire({workers})
        print(json.dumps([process.pid for process in pool._crew._started.values()]), flush=True)
        work(pool)
else:
    print("[]", flush=True)
    work(Logged(seconds={seconds}))
"""
ANSWER = AnswerSpec(kind="choice", labels=("answer1", "answer2"))


@pytest.fixture
def start(tmp_path, request):
    """Start a scoring run in a process of its own; it tells its workers' ids once it begins."""
    tests = str(request.config.rootpath / "tests")
    started = []

    def run(workers, seconds):
        paths = {name: str(tmp_path / name) for name in ("log", "journal", "out")}
        code = RUN.format(tests=tests, workers=workers, seconds=seconds, **paths)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def expected(record_of):
    items = [CalibrationItem(record=record_of("apples", n), answer=ANSWER) for n in range(160)]
    return [[one.record_id, one.nll, one.text] for one in measure_all(FakeScorer(), items)]


def finish(start, workers, tmp_path):
    process, _ = start(workers, 0.0)
    assert process.wait(60) == 0
    return json.loads((tmp_path / "out").read_text())


def moments(count):
    """Delays spread over a run of about half a second, the same in every session."""
    return [0.55 * (i * 0.618 % 1) for i in range(count)]


def has_ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def kills(few, all_of_them):
    """A few moments for every test run, and the rest for a full one."""
    return [*moments(few), *(pytest.param(m, marks=pytest.mark.full) for m in moments(all_of_them)[few:])]


@pytest.mark.parametrize("delay", kills(2, 10))
def test_a_killed_run_resumes_with_nothing_scored_twice(start, expected, tmp_path, delay):
    process, _ = start(0, 0.05)
    time.sleep(delay)
    process.kill()
    process.wait()
    first = (tmp_path / "log").read_text().split()
    assert finish(start, 0, tmp_path) == expected
    second = (tmp_path / "log").read_text().split()[len(first) :]
    # The batch under way when the kill came may be begun again; a journalled one never is.
    assert set(first) & set(second) <= set(first[-1:])
    assert len(set(first) | set(second)) == 10


@pytest.mark.parametrize("delay", kills(6, 50))
def test_a_killed_sharded_run_resumes_and_leaves_no_workers(start, expected, tmp_path, delay):
    process, workers = start(2, 0.1)
    time.sleep(delay)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while not all(map(has_ended, workers)):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
    journal = tmp_path / "journal"
    before = journal.read_bytes() if journal.exists() else b""
    assert finish(start, 2, tmp_path) == expected
    # What was journalled stays as it was, and no batch is there twice; a torn last line is cut off.
    assert journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert sorted(int(number) for number in re.findall(rb'"batch":(\d+)', journal.read_bytes())) == list(range(10))


@pytest.mark.parametrize("delay", [0.0, 0.2, *(pytest.param(m, marks=pytest.mark.full) for m in moments(10))])
def test_a_killed_worker_changes_nothing(start, expected, tmp_path, delay):
    process, workers = start(2, 0.1)
    time.sleep(delay)
    os.kill(workers[0], signal.SIGKILL)
    assert process.wait(60) == 0
    assert json.loads((tmp_path / "out").read_text()) == expected


def test_an_interrupted_sharded_run_resumes(start, expected, tmp_path):
    process, workers = start(2, 0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    assert all(map(has_ended, workers))
    assert finish(start, 2, tmp_path) == expected

"""Exit codes and words where stdout or stderr is closed, full or read only in part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a POSIX shell and /dev/full"),
]
ALLOCATE = "allocate --sizes a=100 --sizes b=50 --policy equal"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line, `cb` standing for calibudget; the code is that of the first command of a pipe."""
    line = command.replace("cb ", f"{sys.executable} -m calibudget ") + "; exit ${PIPESTATUS[0]}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=os.environ, check=False)


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_reader_that_has_seen_enough_is_no_failure(form: str) -> None:
    result = shell(f"cb {ALLOCATE} --budget 20 {form} | head -c 0")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_closed_stdout_takes_nothing(form: str) -> None:
    result = shell(f"cb {ALLOCATE} --budget 20 {form} >&-")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_stdout_is_told_and_no_bug(form: str) -> None:
    result = shell(f"cb {ALLOCATE} --budget 20 {form} >/dev/full")
    assert result.returncode == 2
    assert result.stderr == "calibudget: output: No space left on device\n"


@pytest.mark.parametrize("sink", ["&-", "/dev/full"])
def test_without_stderr_the_exit_code_says_it_and_stdout_stays_clean(sink: str) -> None:
    result = shell(f"cb {ALLOCATE} --budget 2000 2>{sink}")
    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize("locale", ["LC_ALL=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0", "LC_ALL=C PYTHONUTF8=1"])
def test_names_beyond_ascii_are_taken_or_refused_in_a_line(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "données"
    folder.mkdir()
    rows = [f'{{"instruction": "q {i}?", "output": "answer{i % 2}"}}\n' for i in range(80)]
    (folder / "pîqa.jsonl").write_text("".join(rows), "utf-8")
    recipe = "engine: fake\nmodel: embedded\nerror: nll\nbudget: 9\ncalibration: {per_source: 30}\nsources:\n  a: "
    (folder / "r.yaml").write_text(f"{recipe}{{path: pîqa.jsonl, answer: none}}\n", "utf-8")
    result = shell(f"{locale} cb run {folder}/r.yaml --output-dir {tmp_path}/ünder")
    if "PYTHONUTF8=1" in locale:
        assert result.returncode == 0
        return
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "UTF-8" in result.stderr
    assert not (tmp_path / "ünder").exists()


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "model: embedded\nengine: fake\nerror: nll\nbudget: 9\nsources:\n  a: {path: 'bool**', answer: none}\n"
    )
    result = shell(f"cb run {tmp_path}/r.yaml --output-dir {tmp_path}/out")
    assert result.returncode == 2
    assert "bool**" in result.stderr


def test_a_reader_of_stderr_that_leaves_stops_no_work(tmp_path: Path) -> None:
    """Both streams go to a reader who takes one line: the run is made whole all the same."""
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"prompt": f"p{i}", "completion": "c"}) + "\n" for i in range(30))
    )
    (tmp_path / "r.yaml").write_text(
        "budget: 4\nfloor: 1\npolicy: equal\ncalibration: none\nsources: {a: {path: a.jsonl, answer: none}}\n"
    )
    command = [sys.executable, "-m", "calibudget", "run", "r.yaml", "--output-dir", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
    assert running.returncode == 0
    assert (tmp_path / "out" / "SHA256SUMS.tsv").exists()

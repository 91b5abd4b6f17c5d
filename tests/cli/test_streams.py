"""Exit codes and words where stdout or stderr is closed, full or read only in part."""

from __future__ import annotations

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
def test_a_reader_that_has_seen_enough_is_no_failure(form):
    result = shell(f"cb {ALLOCATE} --budget 20 {form} | head -c 0")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_closed_stdout_takes_nothing(form):
    result = shell(f"cb {ALLOCATE} --budget 20 {form} >&-")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_stdout_is_told_and_no_bug(form):
    result = shell(f"cb {ALLOCATE} --budget 20 {form} >/dev/full")
    assert result.returncode == 2
    assert result.stderr == "calibudget: output: No space left on device\n"


@pytest.mark.parametrize("sink", ["&-", "/dev/full"])
def test_without_stderr_the_exit_code_says_it_and_stdout_stays_clean(sink):
    result = shell(f"cb {ALLOCATE} --budget 2000 2>{sink}")
    assert (result.returncode, result.stdout) == (2, "")

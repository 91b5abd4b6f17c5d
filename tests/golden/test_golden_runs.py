"""Every kind of run gives the bytes that it gave: see tools/golden_runs.py, which also says how to write them anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_kind_of_run_gives_the_bytes_that_it_gave() -> None:
    # another hash seed than that of the committed digests: no byte may follow the order of a set
    done = subprocess.run(
        [sys.executable, "tools/golden_runs.py", "--check", "tests/golden/runs.tsv"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

"""The tutorial's commands run as they stand on the page, and their quotas are those that it shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


#: Gives the commands one after another in one process, as the console script does.
PROGRAM = """
import json, runpy, sys
from calibudget.cli.entry import entry
for words in json.loads(sys.argv[1]):
    print(*words, file=sys.stderr, flush=True)
    sys.argv = words
    try:
        entry() if words[0] == "calibudget" else runpy.run_path(words[1], run_name="__main__")
    except SystemExit as leave:
        if leave.code:
            raise
"""


@pytest.mark.slow
@pytest.mark.model
def test_every_command_runs_and_gives_the_quotas_that_the_page_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
    commands: list[list[str]] = []
    for kind, text in blocks:
        if kind == "python":
            (tmp_path / "make_data.py").write_text(text, encoding="utf-8")
        else:
            commands += map(shlex.split, text.splitlines())
    commands = [words for words in commands if words[0] in ("calibudget", "python")]  # the set-up is the reader's own
    assert len(commands) == 9
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = dict(
        re.findall(r"^│ (chat|parity|sums) .*│ +(\d+) │ +\d+ - +\d+ │$", PAGE.read_text("utf-8"), re.MULTILINE)
    )
    rows = json.loads((tmp_path / "runs" / "first" / "allocation.json").read_bytes())["sources"]
    quotas = {label: row["quota"] for label, row in rows.items()}
    assert {label: str(quota) for label, quota in quotas.items()} == shown

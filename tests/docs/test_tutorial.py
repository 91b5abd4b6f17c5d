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


@pytest.mark.slow
@pytest.mark.model
def test_every_command_runs_and_gives_the_quotas_that_the_page_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
    ran = 0
    for kind, text in blocks:
        if kind == "python":
            (tmp_path / "make_data.py").write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            words = shlex.split(line)
            if words[0] not in ("calibudget", "python"):  # the set-up is the reader's own
                continue
            start = [sys.executable, *(["-m", "calibudget"] if words[0] == "calibudget" else [])]
            done = subprocess.run(
                [*start, *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            ran += 1
    assert ran == 9
    shown = dict(
        re.findall(r"^│ (chat|parity|sums) .*│ +(\d+) │ +\d+ - +\d+ │$", PAGE.read_text("utf-8"), re.MULTILINE)
    )
    rows = json.loads((tmp_path / "runs" / "first" / "allocation.json").read_bytes())["sources"]
    quotas = {label: row["quota"] for label, row in rows.items()}
    assert {label: str(quota) for label, quota in quotas.items()} == shown

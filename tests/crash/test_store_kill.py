"""Kill -9 at random moments: files stay whole, journals keep what was promised."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibudget.store.files import clean_stale, directory_lock
from calibudget.store.journal import Journal

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")

#: Reports of a child before its end; where in its work that falls is chance.
REPORTS = (1, 2, 3, 8, 20)

REPLACE = """
import sys
from pathlib import Path
from calibudget.store.files import write_atomic
target = Path(sys.argv[1]) / "artefact"
number = 0
while True:
    number += 1
    write_atomic(target, (b"%012d" % number) * 20_000)
    print(number, flush=True)
"""

APPEND = """
import sys
from pathlib import Path
from calibudget.store.journal import Journal
with Journal.open(Path(sys.argv[1]) / "journal", {"run": 1}) as journal:
    number = len(journal.entries)
    while True:
        journal.append({"number": number, "text": "x" * 3_000})
        print(number, flush=True)
        number += 1
"""


def killed(program: Any, directory: Any, reports: Any) -> Any:
    """Run a program, kill it after so many reports, while it goes on; the last number that it reported."""
    child = subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True)
    first = [child.stdout.readline() for _ in range(reports)]  # type: ignore[union-attr]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    reported = [*first, *rest.splitlines(keepends=True)]
    return int([line for line in reported if line.endswith("\n")][-1])


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_file_and_its_leavings_are_cleaned(tmp_path: Path) -> None:
    for reports in REPORTS:
        number = killed(REPLACE, tmp_path, reports)
        data = (tmp_path / "artefact").read_bytes()
        assert data in ((b"%012d" % n) * 20_000 for n in (number, number + 1))
        with directory_lock(tmp_path):
            clean_stale(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".calibudget.lock", "artefact"]


@pytest.mark.slow
def test_a_killed_journal_keeps_every_reported_entry_and_goes_on(tmp_path: Path) -> None:
    for reports in REPORTS:
        number = killed(APPEND, tmp_path, reports)
        with Journal.open(tmp_path / "journal", {"run": 1}) as journal:
            numbers = [entry["number"] for entry in journal.entries]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (number + 1, number + 2)


def test_a_writer_killed_between_write_and_replace_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "artefact").write_bytes(b"old")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from calibudget.store import files\n"
        "files._replace = lambda temporary, path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write_atomic(Path(sys.argv[1]) / 'artefact', b'new')\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "artefact").read_bytes() == b"old"
    assert len(clean_stale(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["artefact"]

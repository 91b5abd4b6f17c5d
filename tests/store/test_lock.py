import subprocess
import sys

import pytest

from calibudget.errors import ArtefactError
from calibudget.store import LOCK_NAME, check_sums, directory_lock, write_sums

HOLD = """
import sys
from pathlib import Path
from calibudget.store.lock import directory_lock
with directory_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_at_once_and_a_dead_one_holds_nothing(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    with pytest.raises(ArtefactError, match="in use by another run"), directory_lock(tmp_path):
        pass
    child.kill()
    child.communicate()
    with directory_lock(tmp_path):
        pass


def test_a_second_block_of_the_same_process_is_refused(tmp_path):
    with directory_lock(tmp_path), pytest.raises(ArtefactError, match="in use"), directory_lock(tmp_path):
        pass


def test_an_error_in_the_block_frees_the_lock(tmp_path):
    with pytest.raises(KeyError), directory_lock(tmp_path):
        raise KeyError
    with directory_lock(tmp_path):
        pass


def test_the_lock_file_is_no_part_of_the_evidence(tmp_path):
    write_sums(tmp_path, [])
    with directory_lock(tmp_path):
        assert (tmp_path / LOCK_NAME).exists()
    assert check_sums(tmp_path) == []


def test_a_missing_directory_is_an_artefact_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtefactError, match="can't be locked"), directory_lock(tmp_path / "file"):
        pass

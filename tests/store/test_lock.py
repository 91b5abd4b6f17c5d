from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store.files import check_writable, directory_lock, output_directory, work_directory

HOLD = """
import sys
from pathlib import Path
from calibudget.store.files import directory_lock
with directory_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_at_once_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"  # type: ignore[union-attr]
    with pytest.raises(ArtefactError, match="in use by another run"), directory_lock(tmp_path):
        pass
    child.kill()
    child.communicate()
    with directory_lock(tmp_path):
        pass


def test_a_patient_one_gets_what_another_lets_go(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"  # type: ignore[union-attr]
    child.stdin.close()  # type: ignore[union-attr]
    with directory_lock(tmp_path, patience=600), pytest.raises(ArtefactError, match="in use"), directory_lock(tmp_path):
        pass
    child.wait()
    child.stdout.close()  # type: ignore[union-attr]


def test_an_error_in_the_block_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyError), directory_lock(tmp_path):
        raise KeyError
    with directory_lock(tmp_path):
        pass


@pytest.mark.parametrize("held", [[], ["kept"]])
def test_an_output_directory_that_got_nothing_is_as_it_was(tmp_path: Path, held: Any) -> None:
    for name in held:
        (tmp_path / name).write_bytes(b"")
    for directory in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(KeyError), output_directory(directory):
            raise KeyError
        check_writable(directory)
    assert [path.name for path in tmp_path.iterdir()] == held


def test_a_directory_in_use_stays_in_use_after_it_was_asked_for(tmp_path: Path) -> None:
    with output_directory(tmp_path / "a"):
        for _ in range(2):
            with pytest.raises(ArtefactError, match="in use"):
                check_writable(tmp_path / "a")


def test_a_work_directory_goes_with_its_work_and_stays_with_what_is_left_of_it(tmp_path: Path) -> None:
    def fail() -> None:
        with work_directory(tmp_path / "work"):
            (tmp_path / "work" / "journal").write_bytes(b"")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "work" / "journal").exists()
    with work_directory(tmp_path / "work"):
        assert (tmp_path / "work" / "journal").exists()
    assert not (tmp_path / "work").exists()

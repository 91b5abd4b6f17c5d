"""Full, failing and read-only disks, at every step and in real sizes: the old state stands, and going on works."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import WORKS, chance_of
from tests.attacks.test_kills import check_goes_on

pytestmark = pytest.mark.slow


def check_refusal(done: Any, place: Any) -> None:
    """A refusal is one of the input's or the machine's, in words and not as a bug."""
    assert done["code"] in (1, 2, 3), (place, done)
    assert "Traceback" not in done["text"], (place, done["text"])


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.cases(1, 72, 4)
def test_a_disk_that_fails_at_a_step_leaves_what_going_on_takes(
    zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any
) -> None:
    chance = chance_of(part, name)
    for _ in range(part[1]):
        harm, place = chance.choice(["ENOSPC", "EIO", "EROFS"]), chance.randrange(whole(name)[1])
        directory = WORKS[name].start(zygote, tmp_path / str(place))
        done = zygote.give(WORKS[name].command(directory), root=str(directory), step=place, harm=harm)
        if done["code"] != 0:  # what only tidies up may fail without a word
            check_refusal(done, (place, harm))
        check_goes_on(zygote, name, directory, whole, (place, harm), finished=done["code"] == 0)
        shutil.rmtree(directory)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.cases(0, 5, 5)
def test_a_disk_of_some_size_that_fills_up(zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any) -> None:
    chance = chance_of(part)
    needed = sum(map(len, whole(name)[0].values()))
    for case in range(part[1]):
        place = tmp_path / f"disk-{case}"
        place.mkdir()
        size = max(chance.randrange(needed * 2) // 4096, 1) * 4096
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=False).returncode:
            pytest.skip("no tmpfs may be mounted here")
        try:
            directory = place / "out"
            try:
                WORKS[name].start(zygote, directory)
            except (OSError, shutil.Error):
                continue  # not even what it starts from has room
            done = zygote.give(WORKS[name].command(directory))
            if done["code"] != 0:
                check_refusal(done, size)
            subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
            check_goes_on(zygote, name, directory, whole, size, finished=done["code"] == 0)
        finally:
            subprocess.run(["umount", place], check=True)

"""Kill -9 at every step of every command that writes, and at random moments: going on gives the undisturbed bytes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.verify import verify
from calibudget.store.files import held_names, is_stale
from tests.attacks.conftest import WORKS, chance_of, contents

pytestmark = pytest.mark.slow
PARTS = 32


def check_goes_on(zygote: Any, name: str, directory: Path, whole: Any, place: Any, *, finished: bool = False) -> None:
    """What a disturbed command left is never in the way; what it finished is whole."""
    work = WORKS[name]
    if name in ("score", "select") and contents(directory) == whole(name)[0]:
        return  # nothing is left to do, and the command refuses an output that is there
    if work.verifies:
        verified = zygote.give(["verify", directory])
        assert verified["code"] == 0, (name, place, verified["text"])
    work_left = (directory / "scores.parquet.work").exists() or any(directory.glob(".shard-*"))
    if not finished or work_left:  # whose removal a disk may refuse
        done = zygote.give([*work.command(directory), *work.again])
        assert done["code"] == 0, (name, place, done["text"])
    expected = whole(name)[0]
    found = contents(directory)
    if finished:  # a disk may refuse the last tidying: such files mean nothing
        found = {file: data for file, data in found.items() if not is_stale(file.split("/")[0]) and not is_stale(file)}
    assert sorted(found) == sorted(expected), (name, place)
    assert [file for file in expected if found[file] != expected[file]] == [], (name, place)


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.cases(1, PARTS, 1)
def test_a_command_killed_at_a_step_goes_on_to_the_same_bytes(
    zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any, record_property: Any
) -> None:
    """In full every step, each part every 32nd."""
    steps = range(whole(name)[1])
    places = chance_of(part).sample(steps, part[1]) if part[0] == 20 else steps[part[0] - 1000 :: PARTS]
    record_property("cases", len(places))
    for place in places:
        directory = WORKS[name].start(zygote, tmp_path / str(place))
        done = zygote.give(WORKS[name].command(directory), root=str(directory), step=place)
        assert done["code"] == -signal.SIGKILL, (place, done)
        check_goes_on(zygote, name, directory, whole, place)
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.cases(0, 40, 4)
def test_a_command_killed_at_a_moment_goes_on_to_the_same_bytes(
    zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any
) -> None:
    chance = chance_of(part)
    seconds = whole(name)[3]
    for case in range(part[1]):
        directory = WORKS[name].start(zygote, tmp_path / str(case))
        done = zygote.give(WORKS[name].command(directory), kill_after=chance.random() * seconds)
        assert done["code"] in (-signal.SIGKILL, 0), done
        check_goes_on(zygote, name, directory, whole, case, finished=done["code"] == 0)
        shutil.rmtree(directory)


def test_what_a_killed_writer_left_is_nothing_and_what_looks_like_it_is_something(zygote: Any, tmp_path: Path) -> None:
    (tmp_path / ".calibudget-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".calibudget-0123456789abcdef.tmp2").write_bytes(b"")
    (tmp_path / ".calibudget-x.tmp").write_bytes(b"")
    assert held_names(tmp_path) == [".calibudget-0123456789abcdef.tmp2", ".calibudget-x.tmp"]
    directory = shutil.copytree(zygote.folder / "fake", tmp_path / "run")
    (directory / ".calibudget-0123456789abcdef.tmp").write_bytes(b"half")
    assert verify(directory).differences == ()
    (directory / ".calibudget-x.tmp").write_bytes(b"")
    assert [difference.file for difference in verify(directory).differences] == [".calibudget-x.tmp"]

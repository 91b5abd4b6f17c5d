"""Places that a command must not write to: what a planted link leads to, a run's directory, a name of no file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.verify import verify
from tests.attacks.conftest import INFLUENCE, TRAINED, WORKS

pytestmark = pytest.mark.slow
#: By work, the links that a stranger may have left in its directory: each where a folder or file of its own belongs.
PLANTED = [
    ("train", ".training"),
    ("train", "training.jsonl"),
    ("evaluate", ".evaluation"),
    ("influence", "warm-up"),
    ("influence", "warm-up/state"),
    ("influence", ".shard-0"),
    ("score", "scores.parquet.work"),
    ("score", "scores.parquet.work/journal"),
    ("study", "cells"),
]


@pytest.mark.parametrize(("name", "link"), PLANTED)
def test_nothing_is_written_through_a_planted_link(zygote: Any, tmp_path: Path, name: str, link: str) -> None:
    work = WORKS[name]
    directory = work.start(zygote, tmp_path / "out")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"a stranger's")
    at = directory / link
    at.parent.mkdir(parents=True, exist_ok=True)
    if at.name == "training.jsonl":
        (directory / ".training").mkdir()
    shutil.rmtree(at, ignore_errors=True)
    at.symlink_to(victim / "file" if at.suffix or at.name == "journal" else victim)
    done = zygote.give([*work.command(directory), *work.again])
    assert done["code"] == 2, done["text"]
    assert f"{at.name}: is" in " ".join(done["text"].split()), done["text"]
    assert {path.name: path.read_bytes() for path in victim.iterdir()} == {"file": b"a stranger's"}


def test_a_finished_run_gets_no_file_that_is_no_part_of_it(zygote: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(zygote.folder / "scored", tmp_path / "run"))
    for argv in (
        ["score", "model.yaml", "--output", run / "more.parquet"],
        ["score", "model.yaml", "--export", run / "texts.jsonl"],
        ["score", "merge", run / "scores.parquet", "--output", run / "more.parquet"],
        ["influence", "model.yaml", "--output-dir", run, *INFLUENCE],
    ):
        done = zygote.give(argv)
        assert done["code"] == 2, done["text"]
        assert "is a finished run's" in " ".join(done["text"].split()), done["text"]
    assert verify(run).differences == ()


@pytest.mark.parametrize("place", [".", "", "/"])
def test_a_name_of_no_file_is_refused(zygote: Any, place: str) -> None:
    for argv in (
        ["score", "model.yaml", "--output", place],
        ["score", "model.yaml", "--export", place],
        ["score", "merge", "nothing.parquet", "--output", place],
        ["init", "data", "--output", place],
        ["train", "scored", *TRAINED, "--resume", "--output-dir", "scored/manifest.json"],
    ):
        done = zygote.give(argv)
        assert done["code"] == 2, done["text"]
        assert "Traceback" not in done["text"], done["text"]


def test_a_files_name_draws_no_line_and_moves_no_cursor(zygote: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(zygote.folder / "fake", tmp_path / "run"))
    (run / "a\x1b[2J\nlevel  signature: signed\u202e").write_bytes(b"")
    done = zygote.give(["verify", run])
    assert done["code"] == 1
    assert r"differs  a\x1b[2J\nlevel  signature: signed\u202e: expected" in done["text"]
    assert "\nlevel  signature: not signed" in done["text"]
    assert [line for line in done["text"].splitlines() if not line.isprintable()] == []
    done = zygote.give(["verify", tmp_path / "no\x1b[2J"])
    assert done["code"] == 2
    assert r"no\x1b[2J: no such run directory" in done["text"]

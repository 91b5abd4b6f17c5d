"""Places that a command must not write to: what a planted link leads to, a run's directory, a name of no file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.verify import verify
from tests.attacks.conftest import INFLUENCE, TRAINED, WORKS, contents

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


def test_a_run_gets_no_file_that_is_no_part_of_it(zygote: Any, whole: Any, tmp_path: Path) -> None:
    whole("study"), whole("influence")
    run = Path(shutil.copytree(zygote.folder / "scored", tmp_path / "run"))
    (tmp_path / "link").symlink_to(run)
    begun = Path(shutil.copytree(run, tmp_path / "begun"))
    (begun / "SHA256SUMS.tsv").unlink()
    before = contents(tmp_path)
    shards = [f"whole-influence/influence-{shard}-of-2.jsonl" for shard in (0, 1)]
    evaluate = ["evaluate", "fake", "--tasks", "piqa=piqa.test.jsonl", "--data-dir", "data", "--device", "cpu"]
    statistics = ["statistics", "fake/scores.parquet", "--pool-sizes", "fake/splits.parquet"]
    for argv in (
        ["score", "model.yaml", "--output", run / "more.parquet"],
        ["score", "model.yaml", "--export", run / "deep/texts.jsonl"],
        ["score", "merge", "part.parquet", "--output", begun / "more.parquet"],
        ["influence", "model.yaml", "--output-dir", run, *INFLUENCE],
        ["influence", "model.yaml", "--output-dir", run / "influence", *INFLUENCE],
        [
            "proxy",
            "merge",
            *shards,
            *("--subgroup", "boolq", "--subgroup", "piqa", "--shards", "2"),
            "--output",
            run / "x",
        ],
        [*statistics, "--output", run / "statistics.json"],
        [*statistics, "--output", tmp_path / "link/more.json"],
        ["init", "data", "--output", run / "more.yaml"],
        ["report", "fake", "--output", run / "more.html"],
        ["report", "fake", "--output", run / "report.html"],
        ["report", "whole-study", "--output", run / "manifest.json"],
        ["study", "report", "whole-study", "--output-dir", run],
        ["study", "freeze", "protocol.yaml", "--output-dir", run / "study"],
        ["run", "recipe.yaml", "--output-dir", run / "inner"],
        ["select", "recipe.yaml", "--allocation", "fake/allocation.json", "--output-dir", begun / "inner"],
        ["export", "fake", "--for", "huggingface", "--output-dir", run / "out"],
        [*evaluate, "--output-dir", run],
        [*evaluate, "--adapter", "a", "--adapter", "b"],
        ["train", "fake", *TRAINED, "--output-dir", run],
        ["demo", "--output-dir", run],
    ):
        done = zygote.give(argv)
        assert (done["code"], "is a run's, which" in " ".join(done["text"].split())) == (2, True), (argv, done["text"])
    assert contents(tmp_path) == before
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

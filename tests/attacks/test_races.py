"""Two and three commands at once on one directory: one makes it, the others are refused in words."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.evaluated_models import Generation
from calibudget.pipeline.score import export_calibration, merge_scores, score
from calibudget.pipeline.select import select
from calibudget.recipe.load import load_recipe
from calibudget.store import files
from tests.attacks.conftest import MOMENTS, WORKS, chance_of, contents

pytestmark = pytest.mark.slow
COMMANDS = {name: WORKS[name] for name in ("run", "select", "score", "evaluate", "train")} | MOMENTS


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.cases(1, 200, 5)
def test_of_commands_at_once_one_wins(zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any) -> None:
    chance = chance_of(part)
    for case in range(part[1]):
        directory = COMMANDS[name].start(zygote, tmp_path / str(case))
        commands = [COMMANDS[name].command(directory)] * chance.choice([2, 2, 3])
        done = zygote.give(
            *commands, root=str(tmp_path), yields=chance.randrange(20_000), seed=chance.randrange(1 << 30)
        )
        codes = sorted(one["code"] for one in done)
        assert codes == [0] + [2] * (len(done) - 1), [one["text"][-300:] for one in done]
        assert all("Traceback" not in one["text"] and one["text"].strip() for one in done if one["code"]), done
        assert contents(directory) == whole(name)[0]
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", ["select", "score", "evaluate", *MOMENTS])
def test_what_ended_between_asking_and_the_lock_is_kept(
    zygote: Any, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another command of the same work ends just before this one gets the lock: this one is refused then too."""
    directory = COMMANDS[name].start(zygote, tmp_path / "out")
    held = files.directory_lock

    @contextmanager
    def late(folder: Path, **more: Any) -> Iterator[None]:
        monkeypatch.setattr(files, "directory_lock", held)
        done = zygote.give(COMMANDS[name].command(directory))
        assert done["code"] == 0, done["text"]
        with held(folder, **more):
            yield

    calls: dict[str, Callable[[], object]] = {
        "select": lambda: select(load_recipe("recipe.yaml"), "fake/allocation.json", directory),
        "score": lambda: score(load_recipe("model.yaml"), output=directory / "scores.parquet"),
        "export": lambda: export_calibration(load_recipe("model.yaml"), directory / "texts.jsonl"),
        "merge": lambda: merge_scores(["part.parquet"], directory / "scores.parquet"),
        "evaluate": lambda: evaluate(
            directory,
            EvaluationRequest(tasks=("piqa=piqa.test.jsonl",), data_dir=Path("data")),
            engine=Generation(device="cpu"),
        ),
    }
    monkeypatch.chdir(zygote.folder)
    monkeypatch.setattr(files, "check_writable", lambda _: None)
    monkeypatch.setattr("calibudget.pipeline.evaluate.check_writable", lambda _: None)
    monkeypatch.setattr(files, "directory_lock", late)
    with pytest.raises(ArtefactError, match="already"):
        calls[name]()
    assert contents(directory) == whole(name)[0]


@pytest.mark.parametrize("name", MOMENTS)
def test_one_at_a_time_makes_a_file_and_scoring_begun_for_it_stays(zygote: Any, tmp_path: Path, name: str) -> None:
    """What another holds, or began and didn't finish, is neither waited for nor removed."""
    work = tmp_path / ("texts.jsonl.work" if name == "export" else "scores.parquet.work")
    command = MOMENTS[name].command(tmp_path)
    with files.output_directory(work):
        done = zygote.give(command)
        assert (done["code"], "in use by another run" in done["text"]) == (2, True), done["text"]
        (work / "journal").write_bytes(b"of a scoring that was stopped\n")
    done = zygote.give(command)
    assert (done["code"], "holds scoring begun for" in " ".join(done["text"].split())) == (2, True), done["text"]
    assert [path.name for path in tmp_path.iterdir()] == [work.name]
    assert (work / "journal").read_bytes() == b"of a scoring that was stopped\n"

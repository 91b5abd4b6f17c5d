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
from calibudget.pipeline.score import score
from calibudget.pipeline.select import select
from calibudget.pipeline.subjects import Generation
from calibudget.recipe.load import load_recipe
from calibudget.store import files
from tests.attacks.conftest import WORKS, chance_of, contents

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["run", "select", "score", "evaluate", "train"])
@pytest.mark.cases(1, 200, 5)
def test_of_commands_at_once_one_wins(zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any) -> None:
    chance = chance_of(part)
    for case in range(part[1]):
        directory = WORKS[name].start(zygote, tmp_path / str(case))
        commands = [WORKS[name].command(directory)] * chance.choice([2, 2, 3])
        done = zygote.give(
            *commands, root=str(tmp_path), yields=chance.randrange(20_000), seed=chance.randrange(1 << 30)
        )
        codes = sorted(one["code"] for one in done)
        assert codes == [0] + [2] * (len(done) - 1), [one["text"][-300:] for one in done]
        assert all("Traceback" not in one["text"] and one["text"].strip() for one in done if one["code"]), done
        assert contents(directory) == whole(name)[0]
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", ["select", "score", "evaluate"])
def test_what_ended_between_asking_and_the_lock_is_kept(
    zygote: Any, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another command of the same work ends just before this one gets the lock: this one is refused then too."""
    directory = WORKS[name].start(zygote, tmp_path / "out")
    held = files.directory_lock

    @contextmanager
    def late(folder: Path, **more: Any) -> Iterator[None]:
        monkeypatch.setattr(files, "directory_lock", held)
        done = zygote.give(WORKS[name].command(directory))
        assert done["code"] == 0, done["text"]
        with held(folder, **more):
            yield

    calls: dict[str, Callable[[], object]] = {
        "select": lambda: select(load_recipe("recipe.yaml"), "fake/allocation.json", directory),
        "score": lambda: score(load_recipe("model.yaml"), output=directory / "scores.parquet"),
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

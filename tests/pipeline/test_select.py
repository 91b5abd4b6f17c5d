"""`calibudget select` where a draw was interrupted, and where something else is in its directory."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import AllocationError, ArtefactError
from calibudget.pipeline.run_directory import JOURNAL_NAME
from calibudget.pipeline.select import select
from calibudget.recipe.load import load_recipe
from calibudget.store.checksums import SUMS_NAME
from calibudget.store.scores import SCORES_NAME
from tests.conftest import bytes_in


@pytest.fixture
def draw(tmp_path: Path, finished: Path, make_recipe: Any) -> Any:
    """Draws into a directory under the allocation of a finished run."""
    given = shutil.copy(finished / "run" / "allocation.json", tmp_path / "given.json")
    recipe = load_recipe(make_recipe())
    return lambda directory: select(recipe, given, directory)


@pytest.mark.parametrize("stage", ["write_train", "write_sums"])
def test_the_same_command_finishes_an_interrupted_draw(
    draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def stopped(*_arguments: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    draw(tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(import_module("calibudget.pipeline.select"), stage, stopped)
        with pytest.raises(KeyboardInterrupt):
            draw(tmp_path / "drawn")
    assert not (tmp_path / "drawn" / SUMS_NAME).exists()
    draw(tmp_path / "drawn")
    assert bytes_in(tmp_path / "drawn") == bytes_in(tmp_path / "whole")


def test_a_finished_draw_and_the_scores_of_an_unfinished_run_are_left_alone(draw: Any, tmp_path: Path) -> None:
    draw(tmp_path / "drawn")
    before = bytes_in(tmp_path / "drawn")
    with pytest.raises(ArtefactError, match="is finished already; name another directory"):
        draw(tmp_path / "drawn")
    assert bytes_in(tmp_path / "drawn") == before
    for name in (JOURNAL_NAME, SCORES_NAME):
        directory = tmp_path / name
        shutil.copytree(tmp_path / "drawn", directory)
        (directory / SUMS_NAME).unlink()
        (directory / name).write_text("paid for")
        with pytest.raises(ArtefactError, match="`calibudget run --resume` goes on with"):
            draw(directory)
        assert (directory / name).read_text() == "paid for"


def test_an_allocation_of_a_policy_that_was_removed_is_not_drawn(draw: Any, tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_text(path.read_text().replace('"policy":"calibudget"', '"policy":"least-nll"'))
    with pytest.raises(AllocationError, match=r"^the policy 'least-nll' was removed: "):
        draw(tmp_path / "drawn")
    assert not (tmp_path / "drawn").exists()


def test_quotas_that_were_edited_under_their_digest_are_not_drawn(draw: Any, tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    edited = json.loads(path.read_bytes())
    edited["quotas_sha256"] = "0" * 64
    path.write_text(json.dumps(edited))
    with pytest.raises(ArtefactError, match=r"given\.json: quotas_sha256: isn't the digest of its quotas"):
        draw(tmp_path / "drawn")
    assert not (tmp_path / "drawn").exists()
    del edited["quotas_sha256"]
    path.write_text(json.dumps(edited))
    draw(tmp_path / "drawn")

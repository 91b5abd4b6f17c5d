"""The warm-up's state is kept before its training tidies up; a kill between the two leaves nothing for good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.influence.scorer import STATE_NAME, warm_up
from calibudget.lm.loading import load_model
from calibudget.training.job import TrainingJob
from tests.training.conftest import training_job


@pytest.mark.slow
def test_a_warm_up_killed_after_its_state_was_kept_is_tidied_up(
    tiny_directory: Path, tmp_path: Path, examples: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> TrainingJob:
        return training_job(load_model(str(tiny_directory), device="cpu"), examples, config, tmp_path / "warm-up")

    def die(_path: Path) -> None:
        raise SystemExit

    monkeypatch.setattr("calibudget.training.loop.remove_directory", die)
    with pytest.raises(SystemExit):
        warm_up(make())
    monkeypatch.undo()
    job = make()
    assert (job.output_dir / STATE_NAME).exists()
    shutil.rmtree(job.adapter)  # whose name a power cut may take, though not the state's
    steps, _ = warm_up(job)
    assert steps == warm_up(make())[0]
    assert sorted(path.name for path in job.output_dir.iterdir() if path.suffix != ".lock") == [
        "adapter",
        "state",
        "training.jsonl",
    ]

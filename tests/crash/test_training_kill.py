"""Training killed at random moments (kill -9) and resumed ends with the same bytes as one left alone."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import sys
from pathlib import Path

import torch

from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import encode_examples
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train

torch.set_num_threads(1)
model_directory, output_dir = sys.argv[1:]
model = load_model(model_directory, device="cpu")
rows = [
    {
        "source": "apples",
        "record_id": str(i),
        "role": "source",
        "prompt": "How many apples?" + " 12 and 345" * (i % 4),
        "completion": "the correct answer is answer1",
        "original": {},
    }
    for i in range(20)
]
config = TrainingConfig(rank=2, max_length=256, batch_size=4, epochs=6, learning_rate=1e-3)
job = TrainingJob(
    language_model=model,
    examples=encode_examples(rows, model.encoder("alpaca"), max_length=256, too_long="refuse"),
    config=config,
    execution=Execution(device="cpu", deterministic=True, checkpoint_every=2),
    output_dir=Path(output_dir),
    evidence={},
)
train(job, resume=True, listener=lambda report: print(report.step, flush=True))
"""


def start(model_directory: Any, output_dir: Any) -> Any:
    command = [sys.executable, "-c", SCRIPT, str(model_directory), str(output_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(model_directory: Any, output_dir: Any) -> Any:
    process = start(model_directory, output_dir)
    output, _ = process.communicate()
    assert process.returncode == 0
    return output


def contents(output_dir: Path) -> Any:
    files = sorted(path for path in output_dir.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(output_dir).as_posix(): path.read_bytes() for path in files}


def kill_after(process: Any, steps: Any, delay: Any) -> None:
    """Kill the process once it has said so many steps, a moment later."""
    for _ in range(steps):
        if not process.stdout.readline():
            break
    time.sleep(delay)
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.full)])
def test_killed_training_resumes_to_the_same_bytes(tiny_directory: Path, tmp_path: Path, kills: int) -> None:
    finish(tiny_directory, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    moments = random.Random(kills)  # noqa: S311 - moments to kill at, no secret
    lives = 0
    for number in range(kills):
        directory = tmp_path / f"killed-{lives}"
        process = start(tiny_directory, directory)
        kill_after(process, moments.randint(0, 12 if kills > 3 else 6), moments.random() * 0.05)
        if (directory / "adapter").exists() and not (directory / ".training").exists():
            # Killed when nothing was left to do, so the next kill needs another run.
            assert contents(directory) == whole, f"kill {number}"
            lives += 1
    directory = tmp_path / f"killed-{lives}"
    output = finish(tiny_directory, directory)
    assert contents(directory) == whole
    if kills == 3:
        assert len(output.split()) < 30, "the last life started from a checkpoint"

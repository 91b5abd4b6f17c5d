"""The short training after which gradients are taken, its factors and Adam's moments kept."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from torch import Tensor

from calibudget.errors import ArtefactError
from calibudget.training.checkpoint import load_checkpoint, save_checkpoint
from calibudget.training.devices import Devices
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train
from calibudget.training.reports import Listener

#: Folder of what is kept, beside the adapter.
STATE_NAME: Final = "state"


def warm_up(
    job: TrainingJob, *, devices: Devices | None = None, listener: Listener | None = None
) -> tuple[int, dict[str, Tensor]]:
    """Train, unless it was done before, and keep what training left.

    Args:
        job: what is trained; its model is changed in place where training is still to be done.
        devices: this process among those that train together.
        listener: told after each step.

    Returns:
        Optimizer steps taken, and the factors and moments as `Learner.load` takes them, on the CPU.

    Raises:
        ArtefactError: the directory holds a warm-up of another model, pool or configuration, or a damaged one.
        TrainingError: something that can't be trained on.
        InterruptedRunError: stopped on request; the next call goes on.
    """
    kept = job.output_dir / STATE_NAME
    found = load_checkpoint(kept, job.identity(), is_finished=True)
    if found is None:
        result = train(job, devices=devices, resume=True, listener=listener, conclude=lambda: _keep(job, kept))
        result.heed_stop()
        found = load_checkpoint(kept, job.identity())
    if found is None:
        raise ArtefactError(f"{kept}: the warm-up's state isn't there; remove {job.output_dir} and start again")
    return found


def _keep(job: TrainingJob, kept: Path) -> None:
    last = load_checkpoint(job.checkpoints, job.identity())
    if last is None:
        raise ArtefactError(f"{job.checkpoints}: the last checkpoint is gone")
    save_checkpoint(kept, step=last[0], tensors=last[1], identity=job.identity())

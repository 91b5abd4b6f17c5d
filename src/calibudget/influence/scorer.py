"""The short training after which gradients are taken, its factors and Adam's moments kept.

A model that was warmed up on a part of the pool, and says of any row what it does for each calibration subgroup.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from calibudget.errors import ArtefactError, TrainingError
from calibudget.influence.config import InfluenceConfig
from calibudget.influence.gradients import ExampleGradients, adam_direction
from calibudget.influence.similarity import Similarities, SketchTable
from calibudget.lm.encoding import Encoder, Template
from calibudget.lm.loading import LanguageModel
from calibudget.selection.sketch import CountSketch
from calibudget.store.files import clean_stale, directory_lock, remove_directory
from calibudget.training.checkpoint import load_checkpoint, save_checkpoint
from calibudget.training.config import Execution
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.devices import Devices
from calibudget.training.job import TrainingJob
from calibudget.training.learner import Learner
from calibudget.training.loop import train
from calibudget.training.report import Listener

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
    if found is None or not job.adapter.exists():
        result = train(job, devices=devices, resume=True, listener=listener, conclude=lambda: _keep(job, kept))
        result.heed_stop()
        found = load_checkpoint(kept, job.identity())
    elif devices is None or devices.is_main:
        _tidy_up(job, kept)
    if found is None:
        raise ArtefactError(f"{kept}: the warm-up's state isn't there; remove {job.output_dir} and start again")
    return found


def _tidy_up(job: TrainingJob, kept: Path) -> None:
    """Remove what a training left that was killed after its state was kept; whoever is at it does it now."""
    with suppress(ArtefactError), directory_lock(job.output_dir):
        if job.checkpoints.exists():
            remove_directory(job.checkpoints)
        for folder in (job.output_dir, kept):
            clean_stale(folder)


def _keep(job: TrainingJob, kept: Path) -> None:
    if load_checkpoint(kept, job.identity()) is not None:
        return
    last = load_checkpoint(job.checkpoints, job.identity())
    if last is None:
        raise ArtefactError(f"{job.checkpoints}: the last checkpoint is gone")
    save_checkpoint(kept, step=last[0], tensors=last[1], identity=job.identity())


#: A row as `selection.train_row` makes it.
Row = Mapping[str, object]
#: Most tokens that go through the model at once where the execution doesn't say; gradients take room beside them.
_BATCH_TOKENS = 8_192


class InfluenceScorer:
    """Scores rows by their similarity to calibration subgroups, after a warm-up.

    Attributes:
        identity: which model this is, as `LanguageModel` says it.
        warm_up_steps: optimizer steps of the warm-up.
    """

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        template: Template,
        config: InfluenceConfig,
        execution: Execution,
        devices: Devices,
    ) -> None:
        """Load the model."""
        self._load, self._template, self._config = load, template, config
        self._execution, self._devices = execution, devices
        self._model: LanguageModel | None = load()
        self._similarities: Similarities | None = None
        self._encoder = Encoder(template, self._model.tokenizer, embedding_size=self._model.embedding_size)
        self.identity = dict(self._model.identity)
        self.warm_up_steps = 0

    def warm_up(
        self, rows: Sequence[Row], directory: Path, evidence: Mapping[str, object], listener: Listener | None = None
    ) -> None:
        """Train on some rows, or take up what an earlier call left in the directory, and prepare for scoring.

        Raises:
            ArtefactError: the directory holds another warm-up.
            TrainingError: something that can't be trained on, or a model whose layers influence doesn't know.
            InterruptedRunError: stopped on request; the same call goes on.
        """
        config = self._config
        model = self._model or self._load()
        job = TrainingJob(
            language_model=model,
            examples=self._encoded(rows),
            config=config.warm_up,
            execution=self._execution,
            output_dir=directory,
            evidence=evidence,
        )
        steps, tensors = warm_up(job, devices=self._devices, listener=listener)
        self._model = model = job = None  # type: ignore[assignment]  # training changed it: a fresh copy is needed
        _free()
        alone = replace(self._execution, fuse=False, compile=False, graphs=False, gradient_checkpointing=False)
        fresh = self._load()
        learner = Learner(fresh.model, str(fresh.identity.get("name")), config.warm_up, alone)
        learner.load(tensors, steps)
        gradients = ExampleGradients(learner)
        sketch = CountSketch(dimension=config.dimension, seed=config.sketch_seed)
        self.warm_up_steps = steps
        self._similarities = Similarities(
            gradients,
            SketchTable(sketch, gradients.size, gradients.device),
            adam_direction(learner, config.warm_up, steps, momentum=config.momentum),
            batch_tokens=min(self._execution.batch_tokens, _BATCH_TOKENS),
        )

    def calibrate(self, subgroups: Mapping[str, Sequence[Row]]) -> None:
        """Take the subgroups' calibration rows, in the order of the mapping.

        Raises:
            ScoringError: a subgroup without rows, or a row without a gradient; it is named.
        """
        self._ready.calibrate({name: self._encoded(rows) for name, rows in subgroups.items()})

    def __call__(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Similarities of rows, in their order, to each subgroup, in order; from -1 to 1.

        Raises:
            ScoringError: a row that can't be encoded, or without a gradient; it is named.
            TrainingError: a row that is too long.
        """
        return self._ready(self._encoded(rows))

    def describe(self) -> dict[str, Any]:
        """What the scores were made with, as JSON; the same for every shard of a pool."""
        config = self._config
        return {
            "model": self.identity,
            "template": self._template,
            "warm_up": {**asdict(config.warm_up), "share": config.warm_up_share, "steps": self.warm_up_steps},
            "sketch": {"dimension": config.dimension, "seed": config.sketch_seed},
            "momentum": config.momentum,
            "batch_tokens": min(self._execution.batch_tokens, _BATCH_TOKENS),
        }

    @property
    def _ready(self) -> Similarities:
        if self._similarities is None:
            raise TrainingError("influence needs a warm-up first")
        return self._similarities

    def _encoded(self, rows: Sequence[Row]) -> tuple[TrainingExample, ...]:
        warm_up = self._config.warm_up
        return encode_examples(rows, self._encoder, max_length=warm_up.max_length, too_long=warm_up.too_long)


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

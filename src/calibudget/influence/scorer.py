"""A model that was warmed up on a part of the pool, and says of any row what it does for each calibration subgroup."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from calibudget.errors import TrainingError
from calibudget.influence.config import InfluenceConfig
from calibudget.influence.direction import adam_direction
from calibudget.influence.gradients import ExampleGradients
from calibudget.influence.similarity import Similarities
from calibudget.influence.sketching import SketchTable
from calibudget.influence.warmup import warm_up
from calibudget.lm import Encoder, LanguageModel
from calibudget.lm.encoding import Template
from calibudget.selection import CountSketch
from calibudget.training.config import Execution
from calibudget.training.devices import Devices
from calibudget.training.examples import TrainingExample, encode_examples
from calibudget.training.job import TrainingJob
from calibudget.training.learner import Learner
from calibudget.training.reports import Listener

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
        """Load the model.

        Args:
            load: loads a fresh copy of the model on this process's device.
            template: how rows are put to it.
            config: what the scores depend on.
            execution: how the model is run.
            devices: this process among those that work together.
        """
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

"""Scores of rows by what training on them would do for each calibration subgroup.

A model is warmed up on a part of the pool first; its factors and Adam's moments are kept.

A candidate's similarity to a subgroup is the mean, over the subgroup's calibration examples, of the cosine between the
sketch of the update that the candidate would make and the sketch of the calibration example's gradient. By linearity it
is one inner product with the mean of the subgroup's gradients, each scaled to length 1 first.

CountSketch is made of many gradients at once, on any device, as they are made. Buckets and signs are those of
`selection/count_sketch.py`, position for position. Sums are float32 here and their order is the device's, so a sketch
is equal to that definition up to rounding.

Source: Xia et al., "LESS" (2024), section 4; paper, appendix "Proxy-Score and Shard Validation", for what is recorded.
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

from calibudget.errors import ArtefactError, ScoringError
from calibudget.influence.config import InfluenceConfig
from calibudget.influence.gradients import Direction, ExampleGradients, adam_direction, second_moments
from calibudget.lm.encoding import Encoder, Template
from calibudget.lm.loading import LanguageModel
from calibudget.selection.count_sketch import CountSketch
from calibudget.store.files import clean_stale, directory_lock, remove_directory
from calibudget.training.checkpoint import load_checkpoint, save_checkpoint
from calibudget.training.config import Execution
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.devices import Devices
from calibudget.training.example_order import rows as laid_in_rows
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train
from calibudget.training.optimizer_step import Learner
from calibudget.training.report import Listener

#: Folder of what is kept, beside the adapter.
STATE_NAME: Final = "state"


def warm_up(
    job: TrainingJob, *, devices: Devices | None = None, listener: Listener | None = None
) -> tuple[int, dict[str, Tensor]]:
    """Train, unless it was done before, and keep what training left; the job's model is changed in place if it trains.

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


#: Positions hashed at a time.
_HASHED: Final = 1 << 22


class SketchTable:
    """Each position's bin, int32, on a device: twice its bucket, plus 1 where its sign is negative."""

    def __init__(self, sketch: CountSketch, size: int, device: torch.device) -> None:
        """Hash all positions once; 4 bytes a position on the device."""
        self.dimension = sketch.dimension
        self.bins = torch.empty(size, dtype=torch.int32, device=device)
        for start in range(0, size, _HASHED):
            stop = min(start + _HASHED, size)
            self.bins[start:stop] = torch.from_numpy(sketch.bins(start, stop).astype("int32")).to(device)


class Sketches:
    """A sink that keeps the sketches of a batch's gradients, or of their directions."""

    def __init__(self, table: SketchTable, weights: Tensor, direction: Direction | None = None) -> None:
        """Begin a batch: its gradients are multiplied by weights (E,), and a direction is sketched in their place."""
        self._table = table
        self._weights = weights[:, None]
        self._direction = direction
        self._sums = torch.zeros((len(weights), 2 * table.dimension), device=weights.device)

    def add(self, start: int, gradients: Tensor) -> None:
        """See `Sink`."""
        values = gradients.float() * self._weights
        if self._direction is not None:
            values = self._direction(start, values)
        self._sums.index_add_(1, self._table.bins[start : start + values.shape[1]], values)

    def finish(self) -> Tensor:
        """The sketches, shape (E, dimension), float32."""
        return self._sums[:, 0::2] - self._sums[:, 1::2]


def unit(sketches: Tensor, names: list[str]) -> Tensor:
    """Sketches (E, dimension) scaled to length 1, in float64.

    Raises:
        ScoringError: a sketch that is zero or not finite, which has no direction; its example is named.
    """
    exact = sketches.double()
    norms = torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    for row in torch.nonzero(~(torch.isfinite(norms[:, 0]) & (norms[:, 0] > 0))).flatten().tolist():
        kind = "zero" if norms[row, 0] == 0 else "not finite"
        raise ScoringError(
            f"{names[row]}: its gradient is {kind}, so it has no similarity to anything; leave the record out, or look "
            "at its response and at the warm-up's loss"
        )
    scaled: Tensor = exact / norms
    return scaled


#: A row as `selection.train_rows.train_row` makes it.
Row = Mapping[str, object]
#: Most tokens that go through the model at once where the execution doesn't say; gradients take room beside them.
_BATCH_TOKENS = 8_192


class InfluenceScorer:
    """Scores rows by their similarity to calibration subgroups, after a warm-up of so many steps."""

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        template: Template,
        config: InfluenceConfig,
        execution: Execution,
        devices: Devices,
    ) -> None:
        self._load, self._template, self._config = load, template, config
        self._execution, self._devices = execution, devices
        self._batch_tokens = min(execution.batch_tokens, _BATCH_TOKENS)
        self._model: LanguageModel | None = load()
        self._gradients: ExampleGradients
        self._means: Tensor
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
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        alone = replace(self._execution, fuse=False, compile=False, graphs=False, gradient_checkpointing=False)
        fresh = self._load()
        learner = Learner(fresh.model, str(fresh.identity.get("name")), config.warm_up, alone)
        learner.load(tensors, steps)
        self._gradients = ExampleGradients(learner)
        sketch = CountSketch(dimension=config.dimension, seed=config.sketch_seed)
        self._table = SketchTable(sketch, self._gradients.size, self._gradients.device)
        self._direction = adam_direction(second_moments(learner), config.warm_up, steps)
        self.warm_up_steps = steps

    def calibrate(self, subgroups: Mapping[str, Sequence[Row]]) -> None:
        """Take the subgroups' calibration rows, in the order of the mapping.

        Raises:
            ScoringError: a subgroup without rows, or a row without a gradient; it is named.
        """
        means = []
        for name, own in subgroups.items():
            if not own:
                raise ScoringError(f"the subgroup {name!r} has no calibration examples to compare with")
            means.append(self._units(own, None).mean(dim=0))
        self._means = torch.stack(means)

    def __call__(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Similarities of rows, in their order, to each subgroup, in order; from -1 to 1.

        Raises:
            ScoringError: a row that can't be encoded, or without a gradient; it is named.
            TrainingError: a row that is too long.
        """
        values = (self._units(rows, self._direction) @ self._means.T).cpu().tolist()
        return [tuple(row) for row in values]

    def describe(self) -> dict[str, Any]:
        """What the scores were made with, as JSON; the same for every shard of a pool."""
        config = self._config
        return {
            "model": self.identity,
            "template": self._template,
            "warm_up": {**asdict(config.warm_up), "share": config.warm_up_share, "steps": self.warm_up_steps},
            "sketch": {"dimension": config.dimension, "seed": config.sketch_seed},
            "batch_tokens": self._batch_tokens,
        }

    def _units(self, rows: Sequence[Row], direction: Direction | None) -> Tensor:
        """Sketches of length 1, in the order of the rows, shape (E, dimension), float64."""
        examples, device = self._encoded(rows), self._gradients.device
        found = torch.zeros((len(examples), self._table.dimension), dtype=torch.float64, device=device)
        lengths = [example.length for example in examples]
        for members in laid_in_rows(range(len(examples)), lengths, self._batch_tokens):
            chosen = [examples[index] for index in members]
            weights = torch.tensor([1.0 / example.response_length for example in chosen], device=device)
            sink = Sketches(self._table, weights, direction)
            self._gradients(chosen, sink)
            found[members] = unit(sink.finish(), [example.name for example in chosen])
        return found

    def _encoded(self, rows: Sequence[Row]) -> tuple[TrainingExample, ...]:
        warm_up = self._config.warm_up
        return encode_examples(rows, self._encoder, max_length=warm_up.max_length, too_long=warm_up.too_long)

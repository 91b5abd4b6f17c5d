"""Gradients of single examples with respect to a model's factors, a batch of examples at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from calibudget.influence.capture import Sink, capture_layers, segments_of
from calibudget.training.batches import packed_batch, padded_batch
from calibudget.training.examples import TrainingExample
from calibudget.training.learner import Learner
from calibudget.training.loss import response_loss


class ExampleGradients:
    """Hands out the gradients of single examples' mean losses at a learner's factors.

    Positions count the entries of all A factors, then those of all B factors, as `FlatFactor` lays them out; each
    factor's entries are row-major.

    Attributes:
        size: number of positions, the unused ones between factors included.
        learner: the model with its factors and the optimizer's moments.
    """

    def __init__(self, learner: Learner) -> None:
        """Let a learner's layers hand out gradients; it can't train any more.

        Args:
            learner: made without shared inputs, compilation, graphs and checkpointing of activations.
        """
        self.learner = learner
        first, second = learner.factors
        self.size = first.values.numel() + second.values.numel()
        starts = {**first.offsets, **{name: first.values.numel() + at for name, at in second.offsets.items()}}
        self._capture = capture_layers(learner.model, starts.__getitem__)
        self._device = first.values.device

    @property
    def device(self) -> torch.device:
        """Where the gradients are made."""
        return self._device

    def __call__(self, examples: Sequence[TrainingExample], sink: Sink) -> None:
        """Send one batch through the model and its gradients to a sink, layer after layer.

        Args:
            examples: the batch; see `batches`.
            sink: takes each factor's gradients of the *sum* over an example's response tokens; divided by their number
                they are those of its mean loss.
        """
        learner = self.learner
        if learner.packs_sequences:
            batch = packed_batch(examples, longest=learner.longest).to(self._device)
        else:
            batch = padded_batch(examples).to(self._device)
        lengths = [example.length for example in examples]
        self._capture.segments = segments_of(batch, lengths, learner.model.dtype)
        self._capture.sink = sink
        try:
            hidden = learner.hidden(batch).flatten(0, 1)
            one = torch.ones((), device=self._device)
            loss = response_loss(hidden, batch.label_rows, learner.head, batch.labels, one)
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._capture.segments = self._capture.sink = None


class Whole:
    """A sink that keeps every entry, for tests and small models.

    Attributes:
        gradients: of E examples, shape (E, size), float32.
    """

    def __init__(self, count: int, size: int, device: torch.device) -> None:
        self.gradients = torch.zeros((count, size), device=device)

    def add(self, start: int, gradients: Tensor) -> None:
        """See `Sink`."""
        self.gradients[:, start : start + gradients.shape[1]] = gradients.float()


def batches(examples: Sequence[TrainingExample], batch_tokens: int) -> Iterator[list[int]]:
    """Part examples into batches of about equal lengths, which waste little where rows are filled up.

    A function of the examples alone, so that their scores are too.

    Args:
        examples: in any order.
        batch_tokens: most tokens of a batch, filling included; a longer example is a batch by itself.

    Yields:
        Indices of each batch's examples, longest first, equal lengths in their order.
    """
    batch: list[int] = []
    for index in sorted(range(len(examples)), key=lambda index: (-examples[index].length, index)):
        if batch and (len(batch) + 1) * examples[batch[0]].length > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch

"""Similarity of candidates' updates to calibration subgroups' gradients, a batch at a time.

A candidate's similarity to a subgroup is the mean, over the subgroup's calibration examples, of the cosine between the
sketch of the update that the candidate would make and the sketch of the calibration example's gradient. By linearity it
is one inner product with the mean of the subgroup's gradients, each scaled to length 1 first.

Source: Xia et al., "LESS" (2024), section 4; paper, appendix "Proxy-Score and Shard Validation", for what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from calibudget.errors import ScoringError
from calibudget.influence.gradients import ExampleGradients, batches
from calibudget.influence.sketching import Direction, Sketches, SketchTable, unit
from calibudget.training.examples import TrainingExample


class Similarities:
    """Compares examples with subgroups of calibration examples.

    Memory on the device depends on the batch, the model and the sketch, and not on how many examples there are.
    """

    def __init__(
        self, gradients: ExampleGradients, table: SketchTable, direction: Direction, *, batch_tokens: int
    ) -> None:
        """Prepare for comparing.

        Args:
            gradients: of single examples, after the warm-up.
            table: where each position of a gradient goes.
            direction: what a candidate's gradients are turned into.
            batch_tokens: most tokens that go through the model at once, filling included.
        """
        self._gradients = gradients
        self._table = table
        self._direction = direction
        self._batch_tokens = batch_tokens
        self._means: Tensor | None = None

    def calibrate(self, subgroups: Mapping[str, Sequence[TrainingExample]]) -> None:
        """Take the subgroups that examples are compared with, in the order of the mapping.

        Raises:
            ScoringError: a subgroup without examples, or one of them has no gradient; it is named.
        """
        means = []
        for name, examples in subgroups.items():
            if not examples:
                raise ScoringError(f"the subgroup {name!r} has no calibration examples to compare with")
            means.append(self._units(examples, None).mean(dim=0))
        self._means = torch.stack(means)

    def __call__(self, examples: Sequence[TrainingExample]) -> list[tuple[float, ...]]:
        """The similarities of some examples, in their order, to each subgroup, in order; from -1 to 1.

        Raises:
            ScoringError: an example's gradient is zero or not finite; it is named.
        """
        if self._means is None:
            raise ScoringError("there are no subgroups to compare with yet; `calibrate` takes them")
        values = (self._units(examples, self._direction) @ self._means.T).cpu().tolist()
        return [tuple(row) for row in values]

    def _units(self, examples: Sequence[TrainingExample], direction: Direction | None) -> Tensor:
        """Sketches of length 1, in the order of the examples, shape (E, dimension), float64."""
        device = self._gradients.device
        found = torch.zeros((len(examples), self._table.dimension), dtype=torch.float64, device=device)
        for members in batches(examples, self._batch_tokens):
            chosen = [examples[index] for index in members]
            weights = torch.tensor([1.0 / example.response_length for example in chosen], device=device)
            sink = Sketches(self._table, weights, direction)
            self._gradients(chosen, sink)
            found[members] = unit(sink.finish(), [example.name for example in chosen])
        return found

"""CountSketch of many gradients at once, on any device, as they are made.

Buckets and signs are those of `selection.CountSketch`, position for position. Sums are float32 here and their order is
the device's, so a sketch is equal to that definition up to rounding.

Similarity of candidates' updates to calibration subgroups' gradients, a batch at a time.

A candidate's similarity to a subgroup is the mean, over the subgroup's calibration examples, of the cosine between the
sketch of the update that the candidate would make and the sketch of the calibration example's gradient. By linearity it
is one inner product with the mean of the subgroup's gradients, each scaled to length 1 first.

Source: Xia et al., "LESS" (2024), section 4; paper, appendix "Proxy-Score and Shard Validation", for what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from calibudget.errors import ScoringError
from calibudget.influence.gradients import ExampleGradients
from calibudget.selection.sketch import CountSketch
from calibudget.training.data import TrainingExample
from calibudget.training.order import rows

#: Positions hashed at a time.
_HASHED: Final = 1 << 22
#: What is sketched in place of the gradients: of a start position and gradients (E, n).
Direction = Callable[[int, Tensor], Tensor]


class SketchTable:
    """Each position's bin on a device: twice its bucket, plus 1 where its sign is negative.

    Attributes:
        dimension: number of buckets.
        bins: shape (size,), int32.
    """

    def __init__(self, sketch: CountSketch, size: int, device: torch.device) -> None:
        """Hash all positions once; 4 bytes a position on the device.

        Args:
            sketch: dimension and seed.
            size: number of positions.
            device: where the gradients are.
        """
        self.dimension = sketch.dimension
        self.bins = torch.empty(size, dtype=torch.int32, device=device)
        for start in range(0, size, _HASHED):
            stop = min(start + _HASHED, size)
            self.bins[start:stop] = torch.from_numpy(sketch.bins(start, stop).astype("int32")).to(device)


class Sketches:
    """A sink that keeps the sketches of a batch's gradients, or of their directions."""

    def __init__(self, table: SketchTable, weights: Tensor, direction: Direction | None = None) -> None:
        """Begin a batch.

        Args:
            table: where each position goes.
            weights: what each example's gradients are multiplied by first, shape (E,), float32.
            direction: what is sketched in place of the gradients; None sketches themselves.
        """
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
    """Sketches scaled to length 1, in float64.

    Args:
        sketches: shape (E, dimension).
        names: what to call each example in an error.

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
        lengths = [example.length for example in examples]
        for members in rows(range(len(examples)), lengths, self._batch_tokens):
            chosen = [examples[index] for index in members]
            weights = torch.tensor([1.0 / example.response_length for example in chosen], device=device)
            sink = Sketches(self._table, weights, direction)
            self._gradients(chosen, sink)
            found[members] = unit(sink.finish(), [example.name for example in chosen])
        return found

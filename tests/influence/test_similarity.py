"""Sketches of gradients against selection's definition, and Adam's direction against torch's own AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibudget.errors import ScoringError, TrainingError
from calibudget.influence.gradients import ExampleGradients, adam_direction, second_moments
from calibudget.influence.scorer import Sketches, SketchTable, unit
from calibudget.selection.count_sketch import CountSketch
from tests.influence.conftest import Whole

CPU = torch.device("cpu")


def test_sketches_are_those_of_the_definition(learner_of: Callable[..., Any], examples: Any) -> None:
    gradients = ExampleGradients(learner_of(pack=True))
    sketch = CountSketch(dimension=64, seed=5)
    whole = Whole(len(examples), gradients.size, CPU)
    gradients(examples, whole)
    sketches = Sketches(SketchTable(sketch, gradients.size, CPU), torch.full((len(examples),), 0.5))
    gradients(examples, sketches)
    for found, vector in zip(sketches.finish(), whole.gradients, strict=True):
        expected = sketch(0.5 * vector.numpy())
        assert np.allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6 * np.linalg.norm(expected))


@pytest.mark.parametrize("dimension", [1, 7, 8192, 40_000])
def test_bins_are_the_definitions_at_every_position(dimension: int) -> None:
    sketch = CountSketch(dimension=dimension, seed=3)
    table = SketchTable(sketch, 1000, CPU)
    assert np.array_equal(table.bins.numpy(), sketch.bins(0, 1000).astype(np.int64))


def test_the_direction_is_the_update_that_adamw_would_make(
    learner_of: Callable[..., Any], examples: Any, config: Any
) -> None:
    """A step of torch's AdamW at learning rate 1 moves the factors by minus the direction."""
    learner = learner_of(pack=True, steps=3)
    for factor in learner.factors:
        learner._moments(factor.values)["exp_avg"].zero_()
    direction = adam_direction(second_moments(learner), config, 3)
    before = [factor.values.data.clone() for factor in learner.factors]
    learner.gradients(learner.batches(examples, [1]), examples[1].response_length)
    flat = torch.cat([factor.gradient for factor in learner.factors])[None]
    expected = direction(0, flat)[0]
    for group in learner._optimizer.param_groups:
        group["lr"] = 1.0
    learner._optimizer.step()
    moved = torch.cat([old - factor.values.data for factor, old in zip(learner.factors, before, strict=True)])
    assert expected.norm() > 0
    assert (moved - expected).norm() / expected.norm() < 1e-5
    half = direction(100, flat[:, 100:200])[0]
    assert torch.equal(half, expected[100:200])


def test_no_warm_up_gives_no_direction(learner_of: Callable[..., Any], config: Any) -> None:
    with pytest.raises(TrainingError, match="at least one optimizer step"):
        adam_direction(second_moments(learner_of(pack=True, steps=0)), config, 0)


def test_sketches_are_scaled_to_length_one_and_directionless_ones_are_refused_by_name() -> None:
    sketches = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    assert torch.equal(unit(sketches, ["a", "b"]), torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64))
    with pytest.raises(ScoringError, match="boolq/x: its gradient is zero"):
        unit(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), ["boolq/y", "boolq/x"])
    with pytest.raises(ScoringError, match="boolq/x: its gradient is not finite"):
        unit(torch.tensor([[1.0, float("nan")]]), ["boolq/x"])

"""A tiny model with factors away from zero and moments of a few steps, and the plain reference beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample
from calibudget.training.optimizer_step import Learner
from tests.training.conftest import plain_loss, reference_of

CONFIG = TrainingConfig(rank=4, scaling=8.0, max_length=128, batch_size=4)


class Whole:
    """A sink that keeps every entry of E examples' gradients, shape (E, size), float32."""

    def __init__(self, count: int, size: int, device: torch.device) -> None:
        self.gradients = torch.zeros((count, size), device=device)

    def add(self, start: int, gradients: torch.Tensor) -> None:
        self.gradients[:, start : start + gradients.shape[1]] = gradients.float()


def make_example(length: Any, prompt_length: Any, *, number: int = 0) -> Any:
    ids = ((np.arange(length) * 7 + 3 + number * 11) ** 2 % 300 + 3).astype(np.int32)
    return TrainingExample(
        source="apples", record_id=f"{number:04d}", role="source", ids=ids, prompt_length=prompt_length
    )


@pytest.fixture(scope="session")
def config() -> Any:
    return CONFIG


@pytest.fixture(scope="session")
def examples() -> Any:
    """Eight of unlike lengths."""
    shapes = [(24, 11), (60, 40), (9, 3), (33, 32), (47, 12), (24, 20), (5, 4), (31, 8)]
    return [make_example(length, prompt, number=number) for number, (length, prompt) in enumerate(shapes)]


@pytest.fixture
def learner_of(tiny_directory: Path, examples: Any) -> Any:
    """Learners over fresh copies of the tiny model, after a few steps of training."""

    def make(*, pack: Any, steps: int = 3) -> Any:
        execution = Execution(device="cpu", batch_tokens=4096, pack=pack, fuse=False)
        learner = Learner(load_model(str(tiny_directory), device="cpu").model, "tiny", CONFIG, execution)
        for _ in range(steps):
            tokens = sum(example.response_length for example in examples)
            learner.gradients(learner.batches(examples, range(len(examples))), tokens)
            learner.update((0.01, 0.08))
        return learner

    return make


@pytest.fixture
def one_by_one(tiny_directory: Path) -> Any:
    """Gradients by one backward pass an example through peft's own model, flat as influence lays them out."""

    def make(learner: Any, examples: Any) -> Any:
        reference = reference_of(learner, load_model(str(tiny_directory), device="cpu").model, CONFIG)
        named = dict(reference.named_parameters())
        size = sum(factor.values.numel() for factor in learner.factors)
        found = torch.zeros(len(examples), size)
        for row, example in zip(found, examples, strict=True):
            reference.zero_grad()
            (plain_loss(reference, example) / example.response_length).backward()
            base = 0
            for factor in learner.factors:
                for name, at in factor.offsets.items():
                    gradient = named[name].grad.flatten()
                    row[base + at : base + at + len(gradient)] = gradient
                base += factor.values.numel()
        return found

    return make

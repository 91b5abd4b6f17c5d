"""QLoRA: factors over frozen 4-bit weights learn, and nothing but them changes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.influence.gradients import ExampleGradients
from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import encode_examples
from calibudget.training.layers import FactorLinear
from calibudget.training.optimizer_step import Learner
from tests.influence.conftest import Whole
from tests.training.conftest import plain_loss, reference_of, rows_of

pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes isn't installed: pip install 'calibudget[quantized]'"
)
CONFIG = TrainingConfig(rank=4, scaling=8.0, max_length=128, batch_size=4)


def learner_over(name: str, kind: Any) -> Learner:
    execution = Execution(device="cpu", dtype=kind, batch_tokens=2048)
    return Learner(load_model(name, device="cpu", dtype=kind).model, "tiny", CONFIG, execution)


def steps(learner: Learner, examples: Any, count: int) -> list[float]:
    tokens = sum(example.response_length for example in examples)
    losses = []
    for _ in range(count):
        losses.append(float(learner.gradients(learner.batches(examples, range(len(examples))), tokens)))
        learner.update((0.001, 0.008))
    return losses


@pytest.mark.slow
@pytest.mark.model
def test_the_loss_falls_over_frozen_4_bit_weights_of_the_real_model() -> None:
    base = load_model("embedded", device="cpu", dtype="nf4")
    examples = encode_examples(rows_of(4), base.encoder("alpaca"), max_length=128, too_long="cut")
    execution = Execution(device="cpu", dtype="nf4", batch_tokens=2048)
    learner = Learner(base.model, "embedded", CONFIG, execution)
    frozen = {name: value.clone() for name, value in learner.model.named_parameters() if not value.requires_grad}
    packed = [name for name, value in frozen.items() if value.dtype == torch.uint8]
    losses = steps(learner, examples, 4)
    print("losses", losses)
    assert losses[-1] < 0.8 * losses[0]
    assert len(packed) == 7 * 30
    assert all(torch.equal(dict(learner.model.named_parameters())[name], value) for name, value in frozen.items())


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_the_gradients_over_quantised_weights_are_those_of_pefts_own_layers(
    tiny_directory: Path, examples: Any, kind: Any
) -> None:
    learner = learner_over(str(tiny_directory), kind)
    steps(learner, examples, 2)
    assert sum(isinstance(module, FactorLinear) for module in learner.model.modules()) > 0
    tokens = sum(example.response_length for example in examples)
    learner.gradients(learner.batches(examples, range(len(examples))), tokens)
    own = dict(learner.model.named_parameters())
    reference = reference_of(learner, load_model(str(tiny_directory), device="cpu", dtype=kind).model, CONFIG)
    factors = {name: value for name, value in reference.named_parameters() if value.requires_grad}
    for example in examples:
        (plain_loss(reference, example) / tokens).backward()
    for name, value in factors.items():
        gradient = own[name].grad
        assert gradient is not None
        assert value.grad is not None
        room = 1e-4 if kind == "nf4" else 0.05  # LLM.int8 rounds each batch's inputs
        assert (gradient - value.grad).norm() <= room * value.grad.norm(), name


def test_influence_takes_gradients_over_4_bit_weights(tiny_directory: Path, examples: Any) -> None:
    learner = learner_over(str(tiny_directory), "nf4")
    steps(learner, examples, 2)
    few = examples[:3]
    learner.gradients(learner.batches(few, range(len(few))), 1)
    expected = torch.cat([factor.gradient.clone() for factor in learner.factors])
    made = ExampleGradients(learner)
    sink = Whole(len(few), made.size, made.device)
    made(few, sink)
    assert (sink.gradients.sum(dim=0) - expected).norm() <= 1e-4 * expected.norm()

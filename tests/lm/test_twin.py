"""A twin can be trained on and thrown away, and the first model says what it said before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.lm.loading import load_model, twin

pytestmark = pytest.mark.slow
IDS = torch.tensor([[5, 17, 40, 8, 99]])


def said(language_model: Any) -> Any:
    with torch.no_grad():
        return language_model.model(IDS).logits


def test_a_twin_shares_weights_and_nothing_else(tiny_directory: Path) -> None:
    first = load_model(str(tiny_directory), device="cpu")
    second = twin(first)
    for own, shared in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert own is not shared
        assert own.data_ptr() == shared.data_ptr()
    second.model.config.vocab_size = 7
    second.model.set_attn_implementation("eager")
    assert first.model.config.vocab_size == 320
    assert first.model.config._attn_implementation != "eager"


def test_factors_put_on_a_twin_leave_the_first_model_as_it_was(tiny_directory: Path) -> None:
    from calibudget.training.config import Execution, TrainingConfig
    from calibudget.training.optimizer_step import Learner

    first = load_model(str(tiny_directory), device="cpu")
    before, modules = said(first), [type(module) for module in first.model.modules()]
    config = TrainingConfig(rank=2, scaling=64.0, max_length=256)
    for fuse in (True, False):
        learner = Learner(twin(first).model, "tiny", config, Execution(device="cpu", fuse=fuse))
        for factor in learner.factors:
            factor.values.data.add_(1.0)
        with torch.no_grad():
            assert not torch.equal(learner.model(IDS).logits, before)
        assert torch.equal(said(first), before)
        assert [type(module) for module in first.model.modules()] == modules
